"""How paths and times are written."""

from pathlib import Path

import pytest

from nmt.formats import duration, from_here


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
