"""Limit how many matrix-product kernels oneDNN and torch cache.

On a CPU, oneDNN generates a kernel for each shape that it multiplies and caches the last 1,024; torch caches as many
wrappers. Each shape takes about 0.7 MiB. Training batches keep bringing new shapes, so the caches grow to a gigabyte
or more, although a kernel is rarely used after its update. In a search, the numbers of rows repeat, so the smaller
cache makes the validations and the final evaluation of a training about 10% slower; other commands keep the default
(docs/engineering-log.md).

For AMX, the matrix unit of some processors, a kernel takes longer to generate than to use. There the numbers of rows
are rounded so that they repeat (`nmt.fast.kernels.padded_size`), and the kernels of more shapes are kept.
"""

import os

from nmt.fast.kernels import AMX

CACHE_SIZE_VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
CACHED_KERNELS = 8  # 16 take more memory, and with 4 training was slower
CACHED_KERNELS_FOR_AMX = 128  # with 32 training was slower, and 1,024 are no faster


def limit_kernel_caches(*, bf16: bool = False) -> None:
    """Cache only the kernels of the last few shapes, unless the environment sets the numbers.

    The variables are read at the first product, so this must be called before it.
    """
    for variable in CACHE_SIZE_VARIABLES:
        os.environ.setdefault(variable, str(CACHED_KERNELS_FOR_AMX if AMX and bf16 else CACHED_KERNELS))
