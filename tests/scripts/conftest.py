"""Running the scripts, in this process and in another."""

import csv
import importlib
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
PNG = b"\x89PNG"


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "table.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def study(name: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, str(SCRIPTS / f"{name}.py"), *arguments]
    done = subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Import a script."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: Any) -> Callable[..., int]:
    """Run a script in this process; return its exit status."""

    def run(name: str, *arguments: str, cwd: Path = tmp_path) -> int:
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
        try:
            runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    return run
