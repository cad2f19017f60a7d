"""`python -m nmt.translate` given what it cannot read or write: one message, and nothing is lost."""

import functools
import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.errors import UserError
from nmt.translate import read_lines
from tests.runs import ROOT


@pytest.fixture
def translate(tiny_run: Path, call: Callable[..., Any]) -> Callable[..., Any]:
    return functools.partial(call, "translate", "--checkpoint", str(tiny_run), "--device", "cpu")


def test_input_that_is_not_utf8(translate: Callable[..., Any]) -> None:
    done = translate(stdin=b"He sleeps.\nCaf\xe9.\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: standard input line 2 is not UTF-8 at byte 4: convert it first\n"


@pytest.mark.parametrize("text", ["He sleeps.\n", "\nHe sleeps.\n"])
@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-16LE", "UTF-16BE"])
def test_input_in_utf16(encoding: str, text: str) -> None:
    """Without a byte order mark it is UTF-8 full of NULs, in as many lines and one more."""
    expected = f"^F is not UTF-8 but UTF-16: convert it, with iconv -f {encoding} -t UTF-8$"
    with pytest.raises(UserError, match=expected):
        list(read_lines(io.BytesIO(text.encode(encoding)), "F"))


def test_bad_input_loses_no_earlier_output(translate: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("precious\n")
    done = translate("--output", "out.txt", stdin=b"He sleeps.\n" * 200 + b"Caf\xe9.\n")
    assert done.returncode == 2
    assert (tmp_path / "out.txt").read_text() == "precious\n"
    assert not [path.name for path in tmp_path.iterdir() if "unfinished" in path.name]


def test_the_output_may_be_a_link(translate: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("old\n")
    (tmp_path / "current.txt").symlink_to("old.txt")
    assert translate("--output", "current.txt", "He sleeps.").returncode == 0
    assert (tmp_path / "current.txt").is_symlink()
    assert (tmp_path / "old.txt").read_text() != "old\n"


def test_an_argument_that_is_not_utf8(translate: Callable[..., Any]) -> None:
    done = translate("He sleeps.", "caf\udce9")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: sentence 2 of 2 is not text in UTF-8: convert it first\n"


@pytest.mark.parametrize("option", [("--max-length-ratio", "inf"), ("--length-penalty", "600.0")])
def test_settings_of_the_search_out_of_range(translate: Callable[..., Any], option: tuple[str, str]) -> None:
    done = translate(*option, "He sleeps.")
    assert done.returncode == 2
    assert f"{option[0][2:].replace('-', '_')}={option[1]} is out of range" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_output_may_not_overwrite_the_input(translate: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("He sleeps.\n")
    done = translate("--input", "text", "--output", f"../{tmp_path.name}/text")
    assert done.returncode == 2
    assert "--input and --output are both text" in done.stderr
    assert file.read_text() == "He sleeps.\n"


def test_a_reader_that_goes_away_is_no_error(tiny_run: Path) -> None:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "nmt.translate", "--checkpoint", str(tiny_run)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(b"He sleeps.\n" * 3)
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_standard_input_that_is_closed(tiny_run: Path, tmp_path: Path) -> None:
    line = ["sh", "-c", '"$@" <&-', "sh", sys.executable, "-m", "nmt.translate", "--checkpoint", str(tiny_run)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: standard input is closed: give TEXT or --input FILE\n"
