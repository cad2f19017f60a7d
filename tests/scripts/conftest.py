"""Running the scripts in this process."""

import importlib
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.scripts.running import SCRIPTS, SENTENCES, STEPS, study


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


@pytest.fixture(scope="session")
def attention_study(tmp_path_factory: pytest.TempPathFactory, tiny_options: list[str]) -> Path:
    """A folder in which two runs of the study are finished."""
    folder = tmp_path_factory.mktemp("attention")
    chosen = ("--scores", "additive", "dot", "--normalizers", "sparsemax", "--windows", "global", "--workers", "2")
    done = study("study_attention", *tiny_options, *SENTENCES, *STEPS, *chosen, cwd=folder)
    assert "sparsemax" in done.stdout
    return folder
