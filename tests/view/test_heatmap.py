import subprocess
import sys
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nmt.alignment.pharaoh import parse_pharaoh
from nmt.view.heatmap import draw_heatmap, save_png, to_array
from nmt.view.text_heatmap import render_text

SOURCE = ["the", "old", "cat", "."]
TARGET = ["le", "vieux", "chat"]
WEIGHTS = np.array([[1, 0, 0, 0], [0, 0.6, 0.3, 0.1], [0, 0, 0.8, 0.2]], dtype=np.float32)
STRANGE = ["$5", "a_b^c$", "日本語", "e\u0301t\u00e9", "नमस्ते", "مرحبا", "\x00", "<b>&", "W" * 300, "\u200d", "😀"]


def overlaps(figure: Figure) -> bool:
    """Whether any label lies over another of its axis, or leaves the picture."""
    to_array(figure)
    (axes,) = figure.axes
    columns = [label.get_window_extent() for label in axes.get_xticklabels()]
    rows = [label.get_window_extent() for label in axes.get_yticklabels()]
    beside = any(left.x1 > right.x0 for left, right in pairwise(columns))
    below = any(upper.y0 < lower.y1 for upper, lower in pairwise(rows))
    outside = any(
        box.x0 < 0 or box.y0 < 0 or box.x1 > figure.bbox.x1 or box.y1 > figure.bbox.y1 for box in columns + rows
    )
    return beside or below or outside


def test_axes_bear_the_words_and_the_scale_is_fixed() -> None:
    weights = WEIGHTS * np.float32(0.5)
    (axes,) = draw_heatmap(weights, SOURCE, TARGET).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == SOURCE
    assert [label.get_text() for label in axes.get_yticklabels()] == TARGET
    (image,) = axes.images
    np.testing.assert_array_equal(image.get_array(), weights)
    assert image.get_clim() == (0, 1)


def test_dark_pixels_are_where_the_weight_is() -> None:
    figure = draw_heatmap(np.eye(3, dtype=np.float32)[::-1].copy(), list("abc"), list("xyz"))
    pixels = to_array(figure)
    (axes,) = figure.axes
    brightness = np.zeros((3, 3))
    for row, column in np.ndindex(3, 3):
        x, y = axes.transData.transform((column + 0.2, row + 0.2))
        brightness[row, column] = pixels[len(pixels) - int(y), int(x)].mean()
    np.testing.assert_array_equal(brightness < 128, np.eye(3, dtype=bool)[::-1])


@pytest.mark.parametrize("size", [1, 12, 60])
def test_labels_are_readable_at_every_length(size: int) -> None:
    words = [f"word{'s' * (n % 9)}" for n in range(size)]
    figure = draw_heatmap(np.full((size, size), 1 / size), words, words, title="a title")
    assert not overlaps(figure)
    assert figure.get_figwidth() < 25


def test_gold_links_are_outlined() -> None:
    (axes,) = draw_heatmap(WEIGHTS, SOURCE, TARGET, gold=parse_pharaoh("1-1 2?0")).axes
    patches = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    boxes = {(round(box.get_x() + 0.46), round(box.get_y() + 0.46)): box.get_linestyle() for box in patches}
    assert boxes == {(1, 1): "-", (2, 0): ":"}


def test_panels_stand_side_by_side_under_the_same_words() -> None:
    panels = {"attention": WEIGHTS, "saliency": WEIGHTS[::-1].copy()}
    figure = draw_heatmap(panels, SOURCE, TARGET, title="a title", gold=parse_pharaoh("1-1"))
    pixels = to_array(figure)
    left, right = figure.axes
    assert [axes.get_xlabel() for axes in figure.axes] == list(panels)
    for axes, weights in zip(figure.axes, panels.values(), strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), weights)
        assert [label.get_text() for label in axes.get_xticklabels()] == SOURCE
        assert sum(isinstance(patch, Rectangle) for patch in axes.patches) == 1
        name = axes.xaxis.label.get_window_extent()
        assert 0 < name.y0 < name.y1 < axes.bbox.y0
    assert left.bbox.x1 < right.bbox.x0 < right.bbox.x1 < pixels.shape[1]
    assert (left.bbox.y0, left.bbox.width) == pytest.approx((right.bbox.y0, right.bbox.width))
    (alone,) = draw_heatmap(WEIGHTS, SOURCE, TARGET).axes
    assert left.bbox.width == pytest.approx(alone.bbox.width, abs=1)


def test_any_script_is_drawn_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = draw_heatmap(np.eye(len(STRANGE)), STRANGE, STRANGE, title="$5 \\frac{日本")
        assert to_array(figure).ndim == 3
    assert len(render_text(np.eye(len(STRANGE)), STRANGE, STRANGE).split("\n")) == 12 + len(STRANGE)


@pytest.mark.parametrize("shape", [(0, 0), (0, 2), (2, 0)])
def test_nothing_to_draw_is_drawn_too(shape: tuple[int, int]) -> None:
    target, source = ["a", "b"][: shape[0]], ["a", "b"][: shape[1]]
    assert to_array(draw_heatmap(np.zeros(shape), source, target)).shape[2] == 3
    assert render_text(np.zeros(shape), source, target).count("\n") == max(sum(shape) - 1, 0) - (shape[1] == 2)


def test_png_and_pixels_agree_in_size(tmp_path: Path) -> None:
    figure = draw_heatmap(WEIGHTS, SOURCE, TARGET)
    save_png(figure, tmp_path / "a.png")
    header = (tmp_path / "a.png").read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    pixels = to_array(figure)
    assert pixels.dtype == np.uint8
    assert pixels.shape[:2] == (int.from_bytes(header[20:24], "big"), int.from_bytes(header[16:20], "big"))


def test_text_is_aligned() -> None:
    lines = render_text(WEIGHTS, SOURCE, TARGET).split("\n")
    assert lines == [
        "      t o c",
        "      h l a",
        "      e d t .",
        "   le ██",
        "vieux   ▓▓▒▒░░",
        " chat     ██░░",
    ]


def test_text_counts_wide_and_combining_characters() -> None:
    lines = render_text(np.eye(3), ["日本", "e\u0301", "x"], ["猫", "e\u0301te", "b"]).split("\n")
    assert lines == ["    日", "    本e\u0301 x", " 猫 ██", "e\u0301te   ██", "  b     ██"]


@pytest.mark.parametrize("length", [1, 24, 25, 100])
def test_wide_characters_stand_upright_below_each_other(length: int) -> None:
    (label,) = draw_heatmap(np.ones((1, 1)), ["犬" * length], ["x"]).axes[0].get_xticklabels()
    assert label.get_rotation() == 0
    assert label.get_text().split("\n") == (["犬"] * length if length <= 24 else [*["犬"] * 23, "…"])
    assert draw_heatmap(np.ones((1, 1)), ["a犬" * length], ["x"]).axes[0].get_xticklabels()[0].get_rotation() == 90


def test_pyplot_stays_out() -> None:
    code = "import sys, nmt.view.heatmap; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("words", "width"), [(2, 350), (14, 350), (40, None)])
def test_pixels_have_the_width_asked_for_unless_labels_would_shrink_too_far(words: int, width: int | None) -> None:
    names = ["word"] * words
    own = to_array(draw_heatmap(np.eye(words), names, names)).shape[1]
    assert to_array(draw_heatmap(np.eye(words), names, names), width=350).shape[1] == (width or own)


def picture(word: str) -> np.ndarray:
    return to_array(draw_heatmap(np.ones((1, 1)), ["x"], [word]))


def test_letters_of_a_right_to_left_label_are_in_order() -> None:
    """The first letter is drawn last: as where a control character has its letters drawn as they are written."""
    np.testing.assert_array_equal(picture("אבג"), picture("\u202dגבא"))
    assert picture("אבג").shape != picture("גבא").shape or (picture("אבג") != picture("גבא")).any()


def test_arabic_letters_are_joined() -> None:
    apart = "\u200c".join("بببب")
    assert picture("بببب").shape[1] < picture(apart).shape[1]


def test_east_asian_source_words_stand_upright() -> None:
    (axes,) = draw_heatmap(np.eye(3), ["孩子", "买", "the"], list("abc")).axes
    labels = axes.get_xticklabels()
    assert [label.get_text() for label in labels] == ["孩\n子", "买", "the"]
    assert [label.get_rotation() for label in labels] == [0, 0, 90]
