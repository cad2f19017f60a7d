"""Memory that is freed stays with the process."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, torch
from nmt.fast.heap import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def update():
    parts = [torch.ones(2**20) for _ in range(32)]  # 4 MiB each

if "keep" in sys.argv:
    keep_freed_memory()
update()
before = faults()
for _ in range(10):
    update()
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone has mallopt")
def test_the_next_update_has_the_memory_of_the_last():
    """Pages that were given back have to be cleared by the system again, 32,768 for 128 MiB.

    Systems with huge pages, or that reclaim memory that rests, fault less often or more: half is asked for.
    """
    plain, kept = (int(subprocess.check_output([sys.executable, "-c", PROGRAM, *a])) for a in ([], ["keep"]))
    assert kept < plain / 2
