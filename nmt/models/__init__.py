"""Models: encoders, decoders, cells, search states, checkpoints.

torch multiplies matrices on a CPU by oneDNN, which keeps the kernels of the last 1,024 shapes, some 0.5 MiB each, and
torch as much again. Batches bring ever new shapes: the caches grow to a gigabyte, and a kernel is seldom used after its
update. Eight are enough for the products that a step repeats. Both variables are read at the first product.
"""

import os

for variable in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(variable, "8")
