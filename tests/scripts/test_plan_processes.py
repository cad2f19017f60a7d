"""`scripts/plan_processes.py`: the table, and the link between real processes. No test asserts a time."""

import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.runs import ROOT
from tests.scripts.running import SCRIPTS


def test_the_table(call: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> None:
    figures = ["--update-seconds", "0.5", "--update-tokens", "4000", "--bandwidth", "1.25e9", "--delay", "1e-4"]
    assert call("plan_processes", "update", *figures, "--processes", "8", "1", "--corpus-tokens", "72e6") == 0
    _, *rows = capfd.readouterr().out.splitlines()
    assert [row.split() for row in rows] == [
        ["1", "500.0", "8,000", "1.00", "2.50"],
        ["8", "557.4", "57,409", "0.90", "0.35"],
    ]


def test_the_link_between_two_processes() -> None:
    line = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(SCRIPTS / "plan_processes.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *line, "link", "--parameters", "100000"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(r"2 processes: --bandwidth (\S+) --delay (\S+)\n", done.stdout)
    assert found
    assert float(found[1]) > 0
    assert float(found[2]) > 0


def test_a_link_needs_two_ends(call: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> None:
    assert call("plan_processes", "link") == 2
    assert "torchrun --nproc-per-node=2" in capfd.readouterr().err
