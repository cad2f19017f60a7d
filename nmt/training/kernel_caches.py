"""How many kernels for matrix products are kept.

On a CPU oneDNN generates a kernel for each shape that it multiplies and keeps the last 1,024, and torch keeps as many
of what it needs to call them: about 0.7 MiB for each shape. Batches bring ever new shapes, so that in training the
caches grow to a gigabyte or more, while a kernel is seldom used after its update. In a search the numbers of rows
repeat: those of a training, its validations and final evaluation, are a tenth slower for it; other commands keep the
default (docs/engineering-log.md).
"""

import os

VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
KEPT = 8  # 16 take more memory, and with 4 training was slower


def keep_few_kernels() -> None:
    """Keep those of the last few shapes, unless the environment says how many.

    The variables are read at the first product: in a process that has multiplied before, this changes nothing.
    """
    for variable in VARIABLES:
        os.environ.setdefault(variable, str(KEPT))
