"""Shapes that come once must not be paid for in memory for ever."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nmt.training.kernel_caches import CACHE_SIZE_VARIABLES
from tests.runs import QUIET

MULTIPLY = """
import torch
from nmt.training.kernel_caches import limit_kernel_caches

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20

def multiply(rows):
    for row in rows:
        torch.nn.functional.linear(torch.randn(row, 256).bfloat16(), weight)

torch.set_num_threads(1)
limit_kernel_caches()
weight = torch.randn(512, 256).bfloat16()
multiply(range(600, 620))
before = resident()
multiply(range(100, 600))
print(resident() - before)
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")


def growth(**environment: str) -> float:
    """Return by how many MiB a process grows that multiplies matrices of 500 shapes."""
    inherited = {name: value for name, value in os.environ.items() if name not in CACHE_SIZE_VARIABLES}
    command = [sys.executable, "-c", MULTIPLY]
    done = subprocess.run(command, env=inherited | environment, capture_output=True, text=True, check=True, timeout=300)
    return float(done.stdout)


def test_memory_does_not_grow_with_the_number_of_shapes() -> None:
    assert growth() < 40


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX512", reason="bf16 is not by oneDNN here")
def test_caches_of_another_size_can_be_asked_for() -> None:
    """Without that, or without the function, memory grows by the size of a kernel with each shape."""
    assert growth(**dict.fromkeys(CACHE_SIZE_VARIABLES, "1024")) > 40


def test_a_training_keeps_few(tmp_path: Path, tiny_options: list[str]) -> None:
    """In the process of the real command."""
    told = f"import atexit, os; atexit.register(lambda: print(*map(os.getenv, {CACHE_SIZE_VARIABLES})))"
    program = f"{told}; from nmt.train import main; main()"
    options = ("run_dir=run", *tiny_options, *QUIET, "trainer.max_steps=1")
    command = [sys.executable, "-c", program, *options]
    inherited = {name: value for name, value in os.environ.items() if name not in CACHE_SIZE_VARIABLES}
    done = subprocess.run(command, env=inherited, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "8 8"
