"""The command that checks everything says so only if it has."""

import os
import signal
import subprocess
from pathlib import Path

from tests.runs import ROOT


def test_an_interrupted_check_has_failed(tmp_path: Path) -> None:
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\necho begun\nsleep 60\n")
    slow.chmod(0o755)
    environment = {**os.environ, "PYTHON": str(slow), "TMPDIR": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen([ROOT / ".ci" / "run"], env=environment, **pipes) as checking:  # type: ignore[call-overload]
        assert checking.stdout.readline().startswith("== environment")
        assert checking.stdout.readline() == "begun\n"  # a process that starts later would not be told
        os.killpg(checking.pid, signal.SIGTERM)
        told = checking.stdout.read()
    assert checking.returncode == -signal.SIGTERM
    assert "FAILED" in told
    assert "all well" not in told
    assert list(tmp_path.iterdir()) == [slow]
