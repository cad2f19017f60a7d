"""docs/tutorial.md can be followed: its commands and Python sessions run, section by section, in one folder.

Usually with models of seconds: `tiny_options` are added to every `python -m nmt.train`, and where a session depends on
what was trained (it is in or after the section that loads a translator) only that it runs is checked. With `-m slow`
the commands run as they are written; sessions then must print what the page shows, numbers aside (a row in five may
differ), and translations must stand on the page.
"""

import doctest
import functools
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runs import ROOT

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^(?=## )", PAGE, flags=re.MULTILINE)
INSTALLATION = ["python3 -m venv .venv", ".venv/bin/pip install -e .", "source .venv/bin/activate"]
NUMBER = re.compile(r"\d+(\.\d+)?")


def commands(section: str) -> list[str]:
    """Return the indented lines that are no Python session and no output of one."""
    prose = re.sub(r"^```.*?^```", "", section, flags=re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"(?:^    .*\n)+", prose, flags=re.MULTILINE)
    return [line.strip() for block in blocks if not block.lstrip().startswith(">>>") for line in block.splitlines()]


class Anything(doctest.OutputChecker):
    """Accepts what a model of seconds says."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return True


class Words(doctest.OutputChecker):
    """Compares all but the numbers; a row in five of a session may differ, as another processor's model does."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        lines = [NUMBER.sub("#", text).splitlines() for text in (want, got)]
        differing = sum(one != other for one, other in zip(*lines, strict=False))
        return len(lines[0]) == len(lines[1]) and differing <= len(lines[0]) // 5


@pytest.mark.parametrize("as_written", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_tutorial_can_be_followed(
    as_written: bool,
    call: Callable[..., Any],
    command: Callable[..., Any],
    tiny_options: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    run = functools.partial(command, timeout=1_800) if as_written else call
    limits = [] if as_written else [*tiny_options, "trainer.max_steps=2"]
    names: dict[str, Any] = {}
    checker = doctest.OutputChecker()
    for section in SECTIONS:
        for line in commands(section):
            follow(line, run, limits, tmp_path)
        if "Translator.load" in section:
            checker = Words() if as_written else Anything()
        names = converse(section, names, checker)


def follow(line: str, run: Callable[..., Any], limits: list[str], folder: Path) -> None:
    """Run a command of the page, which must succeed."""
    if line in INSTALLATION:
        return
    words = shlex.split(line)
    if words[0] == "tensorboard":
        serve(words[1:], folder)
        return
    assert words[:2] == ["python", "-m"], line
    module = words[2].removeprefix("nmt.")
    done = run(module, *words[3:], *(limits if module == "train" else []), cwd=folder)
    assert done.returncode == 0, done.stderr
    if module == "translate" and not limits:
        assert all(translation in PAGE for translation in done.stdout.splitlines())


def serve(arguments: list[str], folder: Path) -> None:
    """Start TensorBoard on a free port, wait until it serves, and end it."""
    line = [sys.executable, "-m", "tensorboard.main", *arguments, "--port=0"]
    with subprocess.Popen(line, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            assert any("http://" in said and "TensorBoard" in said for said in server.stderr)
        finally:
            server.kill()


def converse(section: str, names: dict[str, Any], checker: doctest.OutputChecker) -> dict[str, Any]:
    """Run the Python sessions of a section with the names that earlier ones made; return all names."""
    session = doctest.DocTestParser().get_doctest(section, names, "tutorial", "tutorial.md", 0)
    said: list[str] = []
    failed, _ = doctest.DocTestRunner(checker=checker).run(session, out=said.append, clear_globs=False)
    assert not failed, "".join(said)
    return session.globs


def test_the_installation_is_that_of_the_readme() -> None:
    assert commands(SECTIONS[1]) == INSTALLATION
    assert " && ".join(INSTALLATION[:2]) in (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_session_and_command_is_found() -> None:
    found = [line for section in SECTIONS for line in commands(section)]
    assert len([line for line in found if line.startswith("python -m nmt.")]) == 4
    assert len(doctest.DocTestParser().get_examples(PAGE)) == PAGE.count(">>> ")
