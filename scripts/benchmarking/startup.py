"""Startup time: help, imports and the first translation, each in a new process."""

import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarking.machine import seconds_of_repeats
from nmt.errors import UserError

COMMANDS = {
    "nmt.train --help": ["-m", "nmt.train", "--help"],
    "nmt.translate --help": ["-m", "nmt.translate", "--help"],
    "import nmt.translator": ["-c", "import nmt.translator"],
}


def measure_startup(checkpoint: str | None, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield the median time of each command, in seconds, after one run to warm up; see `COMMANDS`.

    With a checkpoint, also until it has translated a word.

    Raises:
        UserError: a command fails.
    """
    commands = dict(COMMANDS)
    if checkpoint is not None:
        commands["first translation"] = ["-m", "nmt.translate", "--checkpoint", checkpoint, "a"]
    for name, arguments in commands.items():
        seconds = seconds_of_repeats(partial(run, arguments), repeats)
        yield {"command": name, "seconds": statistics.median(seconds), "least": min(seconds), "most": max(seconds)}


def run(arguments: list[str]) -> None:
    """Run a new Python."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"{' '.join(arguments)} fails: {(done.stderr.strip().splitlines() or ['without a word'])[-1]}")
