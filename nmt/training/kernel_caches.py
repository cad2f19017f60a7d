"""How many kernels for matrix products are kept.

On a CPU oneDNN generates a kernel for each shape that it multiplies and keeps the last 1,024, and torch keeps as many
of what it needs to call them: about 0.7 MiB for each shape. Batches bring ever new shapes, so that in training the
caches grow to a gigabyte or more, while a kernel is seldom used after its update. In a search the numbers of rows
repeat: those of a training, its validations and final evaluation, are a tenth slower for it; other commands keep the
default (docs/engineering-log.md).

For AMX, the matrix unit of some processors, a kernel takes longer to generate than to use. There the numbers of rows
are rounded so that they repeat (`nmt.fast.kernels.rounded`), and the kernels of more shapes are kept.
"""

import os

from nmt.fast.kernels import AMX

VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
KEPT = 8  # 16 take more memory, and with 4 training was slower
KEPT_FOR_AMX = 128  # with 32 training was slower, and 1,024 are no faster


def keep_few_kernels(*, bf16: bool = False) -> None:
    """Keep those of the last few shapes, unless the environment says how many.

    The variables are read at the first product: in a process that has multiplied before, this changes nothing.
    """
    for variable in VARIABLES:
        os.environ.setdefault(variable, str(KEPT_FOR_AMX if AMX and bf16 else KEPT))
