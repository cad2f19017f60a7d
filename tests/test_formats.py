"""How paths and times are written, and text in UTF-16 is recognized."""

from pathlib import Path

import pytest

from nmt.formats import duration, from_here, utf16_advice


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (0.2, "0:00"), (59.6, "1:00"), (61, "1:01"), (3599.7, "1:00:00"), (7325, "2:02:05")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_paths_below_the_working_directory_are_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert from_here(tmp_path / "run") == Path("run")
    assert from_here(tmp_path.parent / "run") == tmp_path.parent / "run"
    assert from_here(Path("run")) == Path("run")


@pytest.mark.parametrize("text", ["He sleeps.\n", "\nHe sleeps.\n", "a\n", "\ufeff\u732b\n"])
@pytest.mark.parametrize("encoding", ["UTF-16LE", "UTF-16BE"])
def test_text_in_utf16_is_recognized(text: str, encoding: str) -> None:
    named = "UTF-16" if text.startswith("\ufeff") else encoding
    assert str(utf16_advice(text.encode(encoding))).endswith(f"iconv -f {named} -t UTF-8")


@pytest.mark.parametrize("content", [b"", b"\0", b"\0a b\n", b"a\0 b\n", b"\0\0\0\0", b"ab\0\0"])
def test_a_stray_nul_is_text(content: bytes) -> None:
    assert utf16_advice(content) is None
