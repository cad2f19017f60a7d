"""docs/tutorial.ipynb can be followed: every cell runs, with a run of seconds, or with `-m slow` as it is written."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.runs import ROOT

NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"


@pytest.mark.parametrize("as_written", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_notebook_runs(as_written: bool, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    if not as_written:
        shutil.copytree(tiny_run, tmp_path / "outputs" / "first")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=1_800, resources={"metadata": {"path": str(tmp_path)}}).execute()
    kinds = [set(output.get("data", {})) for output in outputs(notebook)]
    assert any("image/png" in each for each in kinds)
    shown = "".join(output.data["text/html"] for output in outputs(notebook) if "text/html" in output.get("data", {}))
    assert len(re.findall(r'<nmt-alignment data="\{', shown)) == 2


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def test_what_it_shows_is_of_a_real_run_and_of_no_machine() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert "Le professeur a vu un banc noir." in text
    assert not [path for path in ("/home/", "/work/", "/tmp/", "/root/", "/Users/") if path in text]
