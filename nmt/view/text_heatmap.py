"""Heatmaps as text, block characters for a terminal: rows are target words, columns source words.

Columns run as the source is read, from right to left in Arabic or Hebrew, here and in all other views.
"""

import unicodedata
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from rich.cells import cell_len, set_cell_size

# Embeddings, overrides and isolates of directions.
DIRECTION_MARKS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\N{REPLACEMENT CHARACTER}")
STRONG_MARKS = "\N{LEFT-TO-RIGHT MARK}\N{RIGHT-TO-LEFT MARK}\N{ARABIC LETTER MARK}"  # as letters of a direction
MAX_LABEL = 24  # characters of a word that are shown
MAX_HEADER = 12  # the same for a word written downwards
SHADES = ((0.75, "█"), (0.5, "▓"), (0.25, "▒"), (0.05, "░"))


def render_text(
    weights: Float[np.ndarray, "target source"],
    source_words: Sequence[str],
    target_words: Sequence[str],
    *,
    width: int | None = None,
) -> str:
    """Draw attention weights with block characters for a terminal; source words are written downwards.

    Each source word has a column of two cells, so that wide (East Asian) characters fit as well. Columns that do not
    fit in `width` cells go on in further pictures below.
    """
    assert weights.shape == (len(target_words), len(source_words)), "[target words, source words]"
    # What turns the direction of letters would go on beyond its word: a terminal knows no boundaries.
    source_words, target_words = (
        [word.translate(DIRECTION_MARKS) for word in words] for words in (source_words, target_words)
    )
    labels = [shorten(word) for word in target_words]
    margin = max(map(cell_len, labels), default=0) + 1
    columns = [characters(shorten(word, MAX_HEADER)) for word in source_words]
    size = len(columns) if width is None else max(1, (width - margin) // 2)
    pictures = []
    for start in range(0, max(len(columns), 1), max(size, 1)):
        part, shares = columns[start : start + size], weights[:, start : start + size]
        if is_right_to_left(source_words):
            part, shares = part[::-1], shares[:, ::-1]
        height = max(map(len, part), default=0)
        padded = [[""] * (height - len(column)) + column for column in part]
        lines = [
            " " * margin + "".join(set_cell_size(letter, 2) for letter in row) for row in zip(*padded, strict=True)
        ]
        for label, row_weights in zip(labels, shares, strict=True):
            blocks = "".join(shade(float(weight)) * 2 for weight in row_weights)
            lines.append(" " * (margin - 1 - cell_len(label)) + f"{label} {blocks}")
        pictures.append("\n".join(line.rstrip() for line in lines))
    return "\n\n".join(pictures)


def characters(word: str) -> list[str]:
    """Return the characters of a word, each with the combining marks that follow it."""
    clusters: list[str] = []
    for character in word:
        if clusters and cell_len(character) == 0:
            clusters[-1] += character
        else:
            clusters.append(character)
    return clusters


def is_right_to_left(words: Sequence[str]) -> bool:
    """Return whether words are read from right to left, by their first letter or mark of direction: so alignment.js."""
    strong = (character for character in "".join(words) if character in STRONG_MARKS or character.isalpha())
    return unicodedata.bidirectional(next(strong, "a")) in ("R", "AL")


def is_wide(word: str) -> bool:
    """Return whether all characters of a word are as wide as high."""
    return word != "" and all(unicodedata.east_asian_width(character) in "WF" for character in word)


def shade(weight: float) -> str:
    """Return the block character of a weight."""
    return next((block for threshold, block in SHADES if weight >= threshold), " ")


def shorten(word: str, limit: int = MAX_LABEL) -> str:
    """Return a label of one line, of at most `limit` characters, without control characters."""
    # Joiners and other invisible format characters are part of some scripts.
    allowed = (c if c.isprintable() or unicodedata.category(c) == "Cf" else "\N{REPLACEMENT CHARACTER}" for c in word)
    label = "".join(allowed)
    return label if len(label) <= limit else label[: limit - 1] + "…"
