"""The machine that a benchmark runs on: its name, its speed in matrix products, the memory used."""

import itertools
import multiprocessing
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt.data.workers import begin_worker
from nmt.fast.kernels import LINEAR, onednn_linear

Shape = tuple[int, int, int]  # rows, inner size and columns of a product

# Each far larger than the caches: square, an output layer's, a layer's.
SHAPES: dict[str, tuple[Shape, ...]] = {
    "cpu": ((2_048, 2_048, 2_048), (1_024, 512, 8_192), (4_096, 1_024, 1_024)),
    "cuda": ((8_192, 8_192, 8_192), (8_192, 1_024, 16_384)),
}
REPEATS = 5


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all submitted work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def gflops_of_products(shapes: Iterable[Shape], device: torch.device, dtype: torch.dtype) -> float:
    """Return GFLOP/s of large matrix products: an upper bound for any program.

    The best of all shapes and libraries at hand, each the median of several products.
    """
    return max(
        gflops_of_product(multiply, shape, device, dtype)
        for multiply, shape in itertools.product(libraries(device, dtype), shapes)
    )


@contextmanager
def gflops_apart(device: torch.device, dtype: torch.dtype) -> Iterator[Callable[[], float]]:
    """Yield `gflops_of_products`, run in a process of its own: its memory is not that of what is measured."""
    threads = (torch.get_num_threads(),)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, initializer=begin_measuring, initargs=threads) as pool:
        yield lambda: pool.submit(gflops_of_products, SHAPES[device.type], device, dtype).result()


def begin_measuring(threads: int) -> None:
    """Prepare the process that measures the machine, which ends with its parent."""
    begin_worker()
    torch.set_num_threads(threads)


def libraries(device: torch.device, dtype: torch.dtype) -> list[Callable[[Tensor, Tensor], Tensor]]:
    """Return functions that compute X W^T: by what torch calls, and by oneDNN where torch does not call it."""
    by_onednn = LINEAR is not None and device.type == "cpu" and dtype == torch.float32
    return [nn.functional.linear, partial(onednn_linear, bias=None)] if by_onednn else [nn.functional.linear]


def gflops_of_product(
    multiply: Callable[[Tensor, Tensor], Tensor], shape: Shape, device: torch.device, dtype: torch.dtype
) -> float:
    """Return GFLOP/s of a product of this shape, the median of several, after one to warm up."""
    rows, inner, columns = shape
    left, right = torch.randn(rows, inner).to(device, dtype), torch.randn(columns, inner).to(device, dtype)

    def work() -> None:
        multiply(left, right)
        synchronize(device)

    return 2 * rows * inner * columns / statistics.median(seconds_of_repeats(work, REPEATS)) / 1e9


def seconds_of_repeats(work: Callable[[], object], repeats: int) -> list[float]:
    """Return the times of some work that returns when all is done, after one to warm up."""
    seconds = []
    for _ in range(1 + repeats):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return seconds[1:]


def peak_rss_mib() -> float:
    """Return the peak resident memory of this process, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10  # bytes there, KiB elsewhere


def describe(device: torch.device) -> dict[str, Any]:
    """Return device, machine, CPU threads and torch version: the context of a measurement."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    return {"device": device.type, "machine": name, "threads": torch.get_num_threads(), "torch": torch.__version__}


def processor() -> str:
    """Return the name of the processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
