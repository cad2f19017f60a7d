"""Temporary folders, and those that killed processes have left."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.data.tables import is_alive, leftovers, temporary_folder
from tests.runs import ROOT


def test_it_is_beside_the_place_and_goes(tmp_path: Path) -> None:
    with temporary_folder(tmp_path / "table") as folder:
        assert folder.parent == tmp_path
        assert folder.name.startswith(".table.")
        (folder / "file").touch()
        assert leftovers(tmp_path / "table") == []
    with pytest.raises(OSError, match="x"), temporary_folder(tmp_path / "table"):
        raise OSError("x")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes_with_the_next(tmp_path: Path) -> None:
    script = "import os, sys, pathlib; from nmt.data.tables import temporary_folder\n"
    script += "with temporary_folder(pathlib.Path('table')) as folder: (folder / 'x').touch(); os.kill(os.getpid(), 9)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment)
    (left,) = tmp_path.iterdir()
    others = [f".table.{socket.gethostname()}.{os.getpid()}-a", ".table.other-host.1-a", f".other{left.name[6:]}"]
    for name in others:
        (tmp_path / name).mkdir()
    assert leftovers(tmp_path / "table") == [left]
    with temporary_folder(tmp_path / "table"):
        assert not left.exists()
    assert {path.name for path in tmp_path.iterdir()} == set(others)


def test_processes() -> None:
    assert [is_alive(each) for each in (str(os.getpid()), "1", "x", "99999999", "9" * 20)] == [
        True,
        True,
        True,
        False,
        True,
    ]
