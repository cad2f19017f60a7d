"""Running the scripts in a process of their own."""

import csv
import os
import subprocess
import sys
from pathlib import Path

from tests.runs import ROOT

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


# Overrides and options of a study of seconds: enough sentences for one with an adjective behind its noun.
SENTENCES = ("data.grammar.validation_size=60", "trainer.log_every=2")
STEPS = ("--steps", "6", "--seed", "3")
COST = ("parameters", "updates", "minutes")  # the last columns of a table
