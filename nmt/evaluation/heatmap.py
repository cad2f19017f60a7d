"""Weights between words drawn: rows are target words, columns source words, the scale is always 0 to 1."""

import functools
import html
import logging
import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from nmt.alignment.pharaoh import Links

CELL = 0.28  # inches a word
MARGIN = 0.15  # inches around everything
GAP = 0.3  # inches between panels
FONT_SIZE = 10
DPI = 110
LEAST_DPI = 60  # below it the labels cannot be read
MAX_LABEL = 24  # characters of a word that are shown
MAX_HEADER = 12  # the same for a word written downwards

# Tried in order for each character that the font before lacks; only those installed are used.
FONTS = (
    *("DejaVu Sans", "Noto Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "WenQuanYi Zen Hei", "Arial Unicode MS"),
    *("Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Thai", "Unifont"),
)

SHADES = ((0.75, "█"), (0.5, "▓"), (0.25, "▒"), (0.05, "░"))


def draw_heatmap(
    weights: Float[np.ndarray, "target source"],
    source_words: Sequence[str],
    target_words: Sequence[str],
    *,
    title: str | None = None,
    gold: Links | None = None,
) -> Figure:
    """Draw attention weights; `gold` links are outlined, sure ones solid and possible ones dashed.

    The figure grows with the sentence, so that every word can be read. Glyphs that no font has are boxes.
    """
    return draw_heatmaps({"": weights}, source_words, target_words, title=title, gold=gold)


def draw_heatmaps(
    panels: Mapping[str, Float[np.ndarray, "target source"]],
    source_words: Sequence[str],
    target_words: Sequence[str],
    *,
    title: str | None = None,
    gold: Links | None = None,
) -> Figure:
    """Draw several weightings of the same words side by side, each with its name, if it has one, underneath."""
    figure = Figure(dpi=DPI)
    FigureCanvasAgg(figure)
    with _quiet():
        for name, weights in panels.items():
            assert weights.shape == (len(target_words), len(source_words)), "a row a target word, a column a source one"
            axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
            if weights.size:
                axes.imshow(weights, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
            _label(axes, source_words, target_words, name)
            _outline(axes, gold)
        for axes in figure.axes[1:]:
            axes.tick_params(labelleft=False)
        _fit(figure, len(source_words), len(target_words), title)
    return figure


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure as PNG."""
    with _quiet():
        figure.savefig(path, format="png")


def to_array(figure: Figure, *, width: int | None = None) -> UInt8[np.ndarray, "height width 3"]:
    """Return the pixels of a figure, for TensorBoard's `add_image(..., dataformats="HWC")`.

    `width`: draw it this many pixels wide; a figure whose labels would become too small keeps its own size.
    """
    dpi = DPI if width is None else (width + 0.5) / figure.get_size_inches()[0]
    figure.set_dpi(dpi if dpi >= LEAST_DPI else DPI)
    canvas = _canvas(figure)
    with _quiet():
        canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def render_text(
    weights: Float[np.ndarray, "target source"], source_words: Sequence[str], target_words: Sequence[str]
) -> str:
    """Draw attention weights with block characters for a terminal; source words are written downwards.

    Each source word has a column of two cells, so that wide (East Asian) characters fit too. A block is blank below
    0.05 and darkens at 0.25, 0.5 and 0.75.
    """
    assert weights.shape == (len(target_words), len(source_words)), "a row a target word, a column a source word"
    labels = [_shorten(word) for word in target_words]
    margin = max((display_width(label) for label in labels), default=0) + 1
    columns = [_cells(_shorten(word, MAX_HEADER)) for word in source_words]
    height = max((len(column) for column in columns), default=0)
    lines = []
    for row in range(height):
        letters = (column[row - height] if row >= height - len(column) else "" for column in columns)
        lines.append(" " * margin + "".join(_pad(letter, 2) for letter in letters))
    for label, row_weights in zip(labels, weights, strict=True):
        blocks = "".join(_shade(float(weight)) * 2 for weight in row_weights)
        lines.append(" " * (margin - 1 - display_width(label)) + f"{label} {blocks}")
    return "\n".join(line.rstrip() for line in lines)


def render_svg(
    weights: Float[np.ndarray, "target source"],
    source_words: Sequence[str],
    target_words: Sequence[str],
    *,
    gold: Links | None = None,
) -> str:
    """Draw attention weights as inline SVG in the colors of the page; pointing at a cell shows its words and weight."""
    assert weights.shape == (len(target_words), len(source_words)), "a row a target word, a column a source word"
    cell, letter = 22, 7.5
    sources, targets = [_shorten(w) for w in source_words], [_shorten(w) for w in target_words]
    left = 12 + letter * max((display_width(word) for word in targets), default=0)
    top = 12 + letter * max((display_width(word) for word in sources), default=0)
    width, height = left + cell * len(sources) + 4, top + cell * len(targets) + 4
    parts = [
        f'<svg class="heatmap" width="{width:.0f}" height="{height:.0f}" role="img">'
        f'<path class="frame" d="M{left:.0f} {top:.0f}h{cell * len(sources)}v{cell * len(targets)}H{left:.0f}z"/>'
    ]
    for i, word in enumerate(sources):
        x = left + cell * (i + 0.5) + 4
        parts.append(f'<text transform="translate({x:.0f} {top - 6:.0f}) rotate(-90)">{html.escape(word)}</text>')
    for j, word in enumerate(targets):
        y = top + cell * (j + 0.5) + 4
        parts.append(f'<text x="{left - 6:.0f}" y="{y:.0f}" text-anchor="end">{html.escape(word)}</text>')
    for j, i in np.ndindex(*weights.shape):
        weight = float(weights[j, i])
        outline = (
            "" if gold is None else "sure" if (i, j) in gold.sure else "possible" if (i, j) in gold.possible else ""
        )
        name = html.escape(f"{_printable(source_words[i])} → {_printable(target_words[j])}: {weight:.3f}")
        parts.append(
            f'<rect x="{left + cell * i + 1:.0f}" y="{top + cell * j + 1:.0f}" width="{cell - 2}" height="{cell - 2}" '
            f'class="{outline}" fill-opacity="{weight:.2f}"><title>{name}</title></rect>'
        )
    return "".join(parts) + "</svg>"


def display_width(text: str) -> int:
    """Terminal cells that a text takes: 2 for a wide character, 0 for a combining one."""
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _cells(word: str) -> list[str]:
    """Characters with the combining marks that follow them."""
    cells: list[str] = []
    for character in word:
        if cells and not _width(character):
            cells[-1] += character
        else:
            cells.append(character)
    return cells


def _pad(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))


def _shade(weight: float) -> str:
    return next((block for least, block in SHADES if weight >= least), " ")


def _shorten(word: str, limit: int = MAX_LABEL) -> str:
    """Keep a label on one line, printable and of bounded length."""
    word = _printable(word)
    return word if len(word) <= limit else word[: limit - 1] + "…"


def _printable(word: str) -> str:
    """Replace control characters; joiners and other invisible format characters are part of some scripts."""
    shown = (c.isprintable() or unicodedata.category(c) == "Cf" for c in word)
    return "".join(c if ok else "\N{REPLACEMENT CHARACTER}" for c, ok in zip(word, shown, strict=True))


def _label(axes: Axes, source_words: Sequence[str], target_words: Sequence[str], name: str) -> None:
    columns, rows = max(len(source_words), 1), max(len(target_words), 1)
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    style: dict[str, Any] = {"fontsize": FONT_SIZE, "fontfamily": list(_fonts()), "parse_math": False}
    axes.set_xticks(range(len(source_words)), [_shorten(w) for w in source_words], rotation=90, **style)
    axes.set_yticks(range(len(target_words)), [_shorten(w) for w in target_words], **style)
    axes.set_xlabel(name, fontsize=FONT_SIZE, color="0.4")
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_xticks(np.arange(columns + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(rows + 1) - 0.5, minor=True)
    axes.tick_params(which="minor", length=0)
    axes.grid(which="minor", color="0.9", linewidth=0.5)
    axes.spines[:].set_color("0.7")


def _outline(axes: Axes, gold: Links | None) -> None:
    for i, j in sorted(gold.possible) if gold else ():
        style = "-" if gold and (i, j) in gold.sure else ":"
        box = Rectangle((i - 0.46, j - 0.46), 0.92, 0.92, fill=False, edgecolor="darkorange", linestyle=style)
        axes.add_patch(box)


def _fit(figure: Figure, num_source: int, num_target: int, title: str | None) -> None:
    """Give every word a cell of the same size, and the labels and the title the room that they measure."""
    renderer = _canvas(figure).get_renderer()
    first = figure.axes[0]
    source_labels = [label.get_window_extent(renderer) for label in first.get_xticklabels()]
    target_labels = [label.get_window_extent(renderer) for label in first.get_yticklabels()]
    left = max((box.width for box in target_labels), default=0) / DPI + MARGIN + 0.1
    top = max((box.height for box in source_labels), default=0) / DPI + MARGIN + 0.1
    named = any(axes.get_xlabel() for axes in figure.axes)
    bottom = MARGIN + (1.5 * FONT_SIZE / 72 if named else 0.0)
    across, down = CELL * max(num_source, 1), CELL * max(num_target, 1)
    width = left + len(figure.axes) * (across + GAP) - GAP + MARGIN
    if title is not None:
        text = figure.text(0, 1, title, fontsize=FONT_SIZE + 1, fontfamily=list(_fonts()), va="top", parse_math=False)
        box = text.get_window_extent(renderer)
        top += box.height / DPI + 0.1
        width = max(width, box.width / DPI + 2 * MARGIN)
    height = top + down + bottom
    figure.set_size_inches(width, height)
    for number, axes in enumerate(figure.axes):
        start = left + number * (across + GAP)
        axes.set_position((start / width, bottom / height, across / width, down / height))
    if title is not None:
        text.set_position((MARGIN / width, 1 - MARGIN / height))


def _canvas(figure: Figure) -> Any:
    """The Agg canvas, whose methods matplotlib leaves untyped."""
    assert isinstance(figure.canvas, FigureCanvasAgg)
    return figure.canvas


@functools.cache
def _fonts() -> tuple[str, ...]:
    installed = set(font_manager.get_font_names())
    return tuple(name for name in FONTS if name in installed) or ("sans-serif",)


@contextmanager
def _quiet() -> Iterator[None]:
    """Matplotlib says so for every glyph that it lacks, every time; a box in a label says it well enough."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
