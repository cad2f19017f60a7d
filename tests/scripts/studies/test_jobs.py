"""Parallel jobs: all are done, errors reach the caller, interrupts reach the jobs."""

import importlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runs import ROOT
from tests.scripts.running import SCRIPTS


@pytest.fixture
def run_jobs(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    function: Callable[..., Any] = importlib.import_module("studies.jobs").run_jobs
    return function


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_every_job_is_done_once(run_jobs: Callable[..., Any], workers: int) -> None:
    done = sorted(run_jobs(math.factorial, range(7), workers))
    assert done == [(n, math.factorial(n)) for n in range(7)]
    assert list(run_jobs(math.factorial, [], workers)) == []


def test_jobs_run_in_other_processes(run_jobs: Callable[..., Any]) -> None:
    groups = {group for _, group in run_jobs(os.getpgid, [0] * 6, 2)}
    assert 1 <= len(groups) <= 2
    assert os.getpgid(0) not in groups


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_reaches_the_caller(run_jobs: Callable[..., Any], workers: int) -> None:
    with pytest.raises(ValueError, match="not defined for negative values"):
        list(run_jobs(math.factorial, [1, -1, 2, 3, 4], workers))


def test_workers_end_with_a_parent_that_is_killed() -> None:
    """They would train on, in folders in which the next call is then refused, or wait for ever."""
    program = "import time; from studies.jobs import run_jobs; jobs = run_jobs(time.sleep, [0, 600], 2)"
    line = [sys.executable, "-c", f"{program}; print(next(jobs), flush=True); time.sleep(600)"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{SCRIPTS}"}
    parent = subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "(0, None)\n"  # one worker is idle, the other one is not
    parent.kill()
    parent.communicate(timeout=60)  # as soon as no process has the pipe


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_an_interrupt_saves_every_run_under_way(tmp_path: Path, tiny_options: list[str]) -> None:
    parts = ("--scores", "additive", "dot", "linear", "--normalizers", "softmax", "--windows", "global")
    line = [sys.executable, str(SCRIPTS / "study_attention.py"), *tiny_options, "trainer.log_every=1", *parts]
    line += ["--workers", "2", "--steps", "1000000"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    runs = tmp_path / "outputs/study_attention/runs"
    under_way = [runs / f"{score}-softmax-global" for score in ("additive", "dot")]
    # A shell's background jobs ignore Ctrl-C, and so would we.
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(line, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, usual)
    try:
        deadline = time.monotonic() + 120
        while not all(
            (run / "metrics.jsonl").is_file() and (run / "metrics.jsonl").stat().st_size for run in under_way
        ):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert error.splitlines()[-1] == "interrupted"
    assert "Traceback" not in error
    assert all((run / "checkpoints/last/model.safetensors").is_file() for run in under_way)
    assert {run.name for run in runs.iterdir()} == {run.name for run in under_way}
