"""The machine that a benchmark runs on: its name, its speed in matrix products, the memory used."""

import platform
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from nmt.fast.kernels import affine

# Rows and columns of the large product: far larger than the caches, and done in a second.
SIZES = {"cpu": 2_048, "cuda": 8_192}
REPEATS = 7


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all submitted work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def gflops_of_product(device: torch.device, dtype: torch.dtype) -> float:
    """Return GFLOP/s of a large matrix product, the median of several: an upper bound for any program.

    It uses the fastest kernels at hand, those of the fast path.
    """
    size = SIZES[device.type]
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    out = left @ right
    seconds = []
    for _ in range(REPEATS):
        synchronize(device)
        began = time.perf_counter()
        affine(left, right, out=out)
        synchronize(device)
        seconds.append(time.perf_counter() - began)
    return 2 * size**3 / statistics.median(seconds) / 1e9


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
