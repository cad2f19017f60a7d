"""Heatmaps by matplotlib: rows are target words, columns source words, the scale is always 0 to 1."""

import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nmt.alignment.pharaoh import Links
from nmt.alignment.weights import Weights
from nmt.view.fonts import fonts_for
from nmt.view.text_heatmap import is_right_to_left, is_wide, shorten

CELL = 0.28  # inches per word
MARGIN = 0.15  # inches around everything
GAP = 0.3  # inches between panels
FONT_SIZE = 10
DPI = 110
LEAST_DPI = 60  # below it the labels are illegible
LONGEST = 60  # words of either side that are drawn without being asked for


class Heatmap(Figure):
    """A figure that notebooks show."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        save_png(self, file)
        return file.getvalue()


def draw_heatmap(
    weights: Weights | Mapping[str, Weights],
    source_words: Sequence[str],
    target_words: Sequence[str],
    *,
    title: str | None = None,
    gold: Links | None = None,
) -> Heatmap:
    """Draw attention weights; `gold` links are outlined, sure ones solid and possible ones dashed.

    Several weightings of the same words are drawn side by side, each with its name underneath. The figure grows with
    the sentence, so that every word can be read. matplotlib orders and joins the letters of right-to-left and Indic
    labels; glyphs that no font has are boxes.
    """
    panels = weights if isinstance(weights, Mapping) else {"": weights}
    fonts = fonts_for([*source_words, *target_words, title or ""])
    figure = Heatmap(dpi=DPI)
    FigureCanvasAgg(figure)
    with _without_warnings():
        for name, panel in panels.items():
            assert panel.shape == (len(target_words), len(source_words)), "[target words, source words]"
            axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
            if panel.size:
                axes.imshow(panel, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
            _label(axes, source_words, target_words, name, fonts)
            _outline(axes, gold)
        for axes in figure.axes[1:]:
            axes.tick_params(labelleft=False)
        _fit(figure, len(source_words), len(target_words), title, fonts)
    return figure


def save_png(figure: Figure, file: Path | io.BytesIO) -> None:
    """Write a figure as PNG."""
    with _without_warnings():
        figure.savefig(file, format="png")


def to_array(figure: Figure, *, width: int | None = None) -> UInt8[np.ndarray, "height width 3"]:
    """Return the pixels of a figure, for TensorBoard's `add_image(..., dataformats="HWC")`.

    `width`: draw it this many pixels wide; a figure whose labels would become too small keeps its own size.
    """
    dpi = DPI if width is None else (width + 0.5) / figure.get_size_inches()[0]
    figure.set_dpi(dpi if dpi >= LEAST_DPI else DPI)
    canvas: Any = figure.canvas  # Agg's, whose methods matplotlib leaves untyped
    with _without_warnings():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _label(axes: Axes, source_words: Sequence[str], target_words: Sequence[str], name: str, fonts: list[str]) -> None:
    columns, rows = max(len(source_words), 1), max(len(target_words), 1)
    axes.set_xlim((columns - 0.5, -0.5) if is_right_to_left(source_words) else (-0.5, columns - 0.5))
    axes.set_ylim(rows - 0.5, -0.5)
    style: dict[str, Any] = {"fontsize": FONT_SIZE, "fontfamily": fonts, "parse_math": False}
    source_labels, target_labels = ([shorten(word) for word in words] for words in (source_words, target_words))
    # East Asian characters stay upright.
    upright = [is_wide(label.removesuffix("…")) for label in source_labels]
    source_labels = ["\n".join(label) if wide else label for label, wide in zip(source_labels, upright, strict=True)]
    axes.set_xticks(range(len(source_words)), source_labels, **style)
    axes.set_yticks(range(len(target_words)), target_labels, **style)
    axes.set_xlabel(name, fontsize=FONT_SIZE, color="0.4")
    axes.xaxis.tick_top()
    for label, wide in zip(axes.get_xticklabels(), upright, strict=True):
        label.set_rotation(0 if wide else 90)
    axes.tick_params(length=0)
    axes.hlines(np.arange(rows + 1) - 0.5, -0.5, columns - 0.5, color="0.9", linewidth=0.5)
    axes.vlines(np.arange(columns + 1) - 0.5, -0.5, rows - 0.5, color="0.9", linewidth=0.5)
    axes.spines[:].set_color("0.7")


def _outline(axes: Axes, gold: Links | None) -> None:
    if gold is None:
        return
    for i, j in sorted(gold.possible):
        style = "-" if (i, j) in gold.sure else ":"
        box = Rectangle((i - 0.46, j - 0.46), 0.92, 0.92, fill=False, edgecolor="darkorange", linestyle=style)
        axes.add_patch(box)


def _fit(figure: Figure, num_source: int, num_target: int, title: str | None, fonts: list[str]) -> None:
    """Give every word a cell of the same size; labels and title get the space that their rendering measures."""
    canvas: Any = figure.canvas
    renderer = canvas.get_renderer()
    first = figure.axes[0]
    source_labels = [label.get_window_extent(renderer) for label in first.get_xticklabels()]
    target_labels = [label.get_window_extent(renderer) for label in first.get_yticklabels()]
    left = max((box.width for box in target_labels), default=0) / DPI + MARGIN + 0.1
    top = max((box.height for box in source_labels), default=0) / DPI + MARGIN + 0.1
    has_names = any(axes.get_xlabel() for axes in figure.axes)
    bottom = MARGIN + (1.5 * FONT_SIZE / 72 if has_names else 0.0)
    panel_width, panel_height = CELL * max(num_source, 1), CELL * max(num_target, 1)
    width = left + len(figure.axes) * (panel_width + GAP) - GAP + MARGIN
    if title is not None:
        text = figure.text(0, 1, title, fontsize=FONT_SIZE + 1, fontfamily=fonts, va="top", parse_math=False)
        box = text.get_window_extent(renderer)
        top += box.height / DPI + 0.1
        width = max(width, box.width / DPI + 2 * MARGIN)
    height = top + panel_height + bottom
    figure.set_size_inches(width, height)
    for number, axes in enumerate(figure.axes):
        start = left + number * (panel_width + GAP)
        axes.set_position((start / width, bottom / height, panel_width / width, panel_height / height))
    if title is not None:
        text.set_position((MARGIN / width, 1 - MARGIN / height))


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress matplotlib's warnings of missing glyphs, one for each, every time: the labels show boxes for them."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
