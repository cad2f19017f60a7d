"""The animated picture of a sentence's attention."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, ImageSequence


def test_the_picture(tiny_run: Path, tmp_path: Path, call: Callable[..., int]) -> None:
    assert call("draw_sharpening", str(tiny_run), "--sentence", "1", "--output", "film.gif", "--width", "200") == 0
    with Image.open(tmp_path / "film.gif") as picture:
        assert len(list(ImageSequence.Iterator(picture))) == 5
        assert picture.size[0] == 200
    assert (tmp_path / "film.gif").stat().st_size < 100_000
    assert [path.name for path in tmp_path.iterdir()] == ["film.gif"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere/alignments.jsonl has 0 sentences"),
        (["--sentence", "7", "RUN"], "has 2 sentences: there is no 7"),
    ],
)
def test_a_run_without_the_sentence(
    tiny_run: Path, call: Callable[..., int], capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert call("draw_sharpening", *[str(tiny_run) if each == "RUN" else each for each in arguments]) == 2
    assert message in capfd.readouterr().err
