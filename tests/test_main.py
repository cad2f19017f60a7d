"""All commands under one name."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.__main__ import COMMANDS
from tests.runs import ROOT


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_the_commands_are_listed(call: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    done = call("__main__", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(COMMANDS) == {"train", "translate", "evaluate", "serve", "export", "share", "datastore", "doctor"}
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("trian",),
            "unknown command 'trian': choose one of datastore, doctor, evaluate, export, serve, share, train, "
            "translate; did you mean 'train'?",
        ),
        (("train", "model.hiden_size=3"), "unknown key 'model.hiden_size'; did you mean 'model.hidden_size'?"),
        (("train", "--hidden-size", "3"), "there is no option --hidden-size: write model.hidden_size=3"),
        (("evaluate", "--checkpoint", "nowhere"), "no checkpoint at nowhere: there is no such folder"),
        (("evaluate", "checkpoint=nowhere"), "no checkpoint at nowhere: there is no such folder"),
        (("translate", "checkpoint=", "a"), "no checkpoint is named: give the folder of a run"),
        (("translate", "checkpoint=nowhere", "a"), "no checkpoint at nowhere: there is no such folder"),
        (("translate", "search.beam_size=3", "a"), "search.beam_size=3 looks like a setting: write --beam-size, or"),
    ],
)
def test_a_mistake_is_one_line(call: Callable[..., Any], arguments: tuple[str, ...], message: str) -> None:
    done = call("__main__", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_command_does_what_its_module_does(tiny_run: Path, call: Callable[..., Any]) -> None:
    options = (f"checkpoint={tiny_run}", "He sleeps.")
    assert call("__main__", "translate", *options).stdout == call("translate", *options).stdout != ""


@pytest.mark.parametrize("module", ["nmt", "nmt.train", "nmt.evaluate", "nmt.translate"])
def test_help_ends_quietly_when_its_reader_has_gone(module: str) -> None:
    line = [sys.executable, "-m", module, "--help"]
    with subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # before it writes
        assert process.stderr.read() == b""
    assert process.returncode in (0, 141)


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_run_without_docstrings(name: str) -> None:
    """As with PYTHONOPTIMIZE=2, which some images of containers set."""
    line = [sys.executable, "-OO", "-m", f"nmt.{name}", "--help"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
