"""One training at a time in a run's folder."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt.errors import UserError
from nmt.training.lock import LOCK_FILE, locked
from tests.runs import ROOT, Completed

HOLD = """
import sys, time
from pathlib import Path
from nmt.training.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(300)
"""


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock of a run."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    process = subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_is_told_who_is_first_and_a_killed_one_holds_nothing(
    holder: subprocess.Popen[str], tmp_path: Path, tiny_options: list[str], call: Callable[..., Completed]
) -> None:
    try:
        with pytest.raises(UserError, match=rf"is being trained in by process {holder.pid} on \S+, since"):
            locked(tmp_path / "run").__enter__()
        done = call("train", "run_dir=run", *tiny_options, "trainer.max_steps=1")
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert f"run is being trained in by process {holder.pid}" in done.stderr
        assert [path.name for path in (tmp_path / "run").iterdir()] == [LOCK_FILE]
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with locked(tmp_path / "run"):
        assert f"process {os.getpid()} on" in (tmp_path / "run" / LOCK_FILE).read_text()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write .*file.*: .*choose another run_dir"), locked(tmp_path / "file"):
        pass
