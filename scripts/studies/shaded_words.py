"""Sentences drawn as text, each word shaded by its weight."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from nmt.view.text_heatmap import is_wide

LINE_LENGTH = 110  # characters
FONT_SIZE = 8  # points
CHARACTER_WIDTH, LINE_HEIGHT = FONT_SIZE * 0.602 / 72, 0.18  # inches


@dataclass(frozen=True)
class ShadedSentence:
    """A sentence with weightings of its words, by name; the word at `outlined` gets a frame."""

    title: str
    words: Sequence[str]
    weightings: Mapping[str, Float[np.ndarray, " words"]]
    outlined: int | None = None


def draw_sentences(sentences: Sequence[ShadedSentence], path: Path) -> None:
    """Draw sentences one below the other: a title, then the words once for each weighting; white is 0, dark blue 1."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    from nmt.view.fonts import fonts_for
    from nmt.view.heatmap import save_png

    blocks = list(lay_out(sentences))
    lines = max((line for line, _ in blocks), default=0) + 1
    margin = max((len(name) for sentence in sentences for name in sentence.weightings), default=0) + 2
    columns = margin + LINE_LENGTH + 1
    figure = Figure(figsize=(columns * CHARACTER_WIDTH, (lines + 1) * LINE_HEIGHT), dpi=120)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, columns), ylim=(lines + 0.5, -0.5))
    axes.axis("off")
    words = [word for sentence in sentences for word in sentence.words]
    font: dict[str, Any] = {"fontsize": FONT_SIZE, "family": ["DejaVu Sans Mono", *fonts_for(words)], "va": "center"}
    for line, block in blocks:
        if isinstance(block, str):
            axes.text(0, line + 0.5, block, weight="bold", **{**font, "family": "DejaVu Sans"})
            continue
        sentence, name = block
        axes.text(0, line + 0.5, name, color="0.4", **font)
        weights = sentence.weightings[name]
        for number, (row, column) in enumerate(positions_of(sentence.words)):
            word, weight = sentence.words[number], float(np.clip(weights[number], 0.0, 1.0))
            corner, width = (margin + column - 0.25, line + row + 0.03), width_of(word) + 0.5
            edge: dict[str, Any] = {"edgecolor": "tab:orange", "linewidth": 1.5} if number == sentence.outlined else {}
            axes.add_patch(Rectangle(corner, width, 0.94, facecolor=colormaps["Blues"](weight), **edge))
            color = "white" if weight > 0.6 else "black"
            axes.text(margin + column, line + row + 0.5, word, color=color, parse_math=False, **font)
    save_png(figure, path)


def lay_out(sentences: Sequence[ShadedSentence]) -> Iterator[tuple[int, str | tuple[ShadedSentence, str]]]:
    """Yield the line at which each title, and each weighting of a sentence, begins; finally the one after all."""
    line = 0
    for sentence in sentences:
        yield line, sentence.title
        line += 1
        for name in sentence.weightings:
            yield line, (sentence, name)
            line += positions_of(sentence.words)[-1][0] + 1
        line += 1
    yield line - 1, ""


def positions_of(words: Sequence[str]) -> list[tuple[int, int]]:
    """Return the line and the column at which each word begins."""
    positions, line, column = [], 0, 0
    for word in words:
        if column and column + width_of(word) > LINE_LENGTH:
            line, column = line + 1, 0
        positions.append((line, column))
        column += width_of(word) + 1
    return positions


def width_of(word: str) -> int:
    """Return the width of a word in characters, of which East Asian ones are two wide."""
    return sum(1 + is_wide(character) for character in word)
