"""The speed of the machine, measured in a process of its own."""

import os
import subprocess
import sys

from tests.runs import ROOT
from tests.scripts.running import SCRIPTS

PROGRAM = """
import time, torch
from benchmarking import machine
machine.SHAPES = {"cpu": ((2, 2, 2),)}
with machine.gflops_apart(torch.device("cpu"), torch.float32) as gflops:
    print(gflops() > 0, flush=True)
    time.sleep(600)
"""


def test_the_process_that_measures_ends_with_a_parent_that_is_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{SCRIPTS}"}
    parent = subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "True\n"
    parent.kill()
    parent.communicate(timeout=60)  # as soon as no process has the pipe
