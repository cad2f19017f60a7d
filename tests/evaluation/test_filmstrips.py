"""Filmstrips of alignments."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from nmt.evaluation.filmstrips import FRAMES, draw_strip, records_by_sentence, write_filmstrips
from nmt.view.heatmap import draw_heatmap


def record(step: int, sample: int, weights: Any = ((1.0, 0.0), (0.0, 1.0))) -> dict[str, Any]:
    words = {"source_words": ["a", "b"], "reference_words": ["x", "y"]}
    return {"step": step, "sample": sample, "reference_weights": weights, **words}


def test_the_frames_of_a_sentence_are_in_the_order_of_updates() -> None:
    groups = records_by_sentence([record(1, 0), record(1, 1), record(3, 0), record(3, 1, []), record(2, 1)])
    frames = [[(frame["sample"], frame["step"]) for frame in group] for group in groups]
    assert frames == [[(0, 1), (0, 3)], [(1, 1), (1, 2)]]


def test_a_strip_shows_the_first_and_the_last(monkeypatch: Any) -> None:
    drawn: list[list[str]] = []

    def note(panels: dict[str, Any], *words: Any) -> Any:
        drawn.append(list(panels))
        return draw_heatmap(panels, *words)

    monkeypatch.setattr("nmt.evaluation.filmstrips.draw_heatmap", note)
    draw_strip([record(step, 0) for step in (1, 10, 30, 100, 300, 353, 706, 1059, 1329)])
    draw_strip([record(step, 0) for step in (5, 6)])
    assert drawn[0][:2] == ["update 1", "update 10"]
    assert drawn[0][-1] == "update 1,329"
    assert len(drawn[0]) <= FRAMES
    assert drawn[1] == ["update 5", "update 6"]


def test_the_picture(tmp_path: Path) -> None:
    light, dark = record(1, 1, [[0.0, 0.0], [0.0, 0.0]]), record(9, 1, [[1.0, 1.0], [1.0, 1.0]])
    write_filmstrips([record(1, 0), record(9, 0), light, dark], tmp_path / "new" / "film.png")
    pixels = np.asarray(Image.open(tmp_path / "new" / "film.png"))
    height, width, _ = pixels.shape
    upper, lower = pixels[: height // 2], pixels[height // 2 :]
    blue = [np.all(half < (60, 90, 160), axis=2) & (half[..., 2] > 80) for half in (upper, lower)]
    assert blue[0][:, : width // 2].any()
    assert not blue[1][:, : width // 2].any()
    assert blue[1][:, width // 2 :].any()


def test_sentences_that_are_too_long_to_look_at_are_left_out() -> None:
    long = [record(step, 1, np.zeros((70, 2)).tolist()) | {"reference_words": ["x"] * 70} for step in (1, 2)]
    assert [frames[0]["sample"] for frames in records_by_sentence([record(1, 0), *long])] == [0]


def test_a_single_picture_is_no_filmstrip(tmp_path: Path) -> None:
    write_filmstrips([record(1, 0)], tmp_path / "film.png")
    assert list(tmp_path.iterdir()) == []
