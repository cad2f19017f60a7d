"""Check that text survives the round trip through subwords: normalization may change characters and lower scores."""

import itertools
import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nmt.text.tokenizer import Tokenizer
from nmt.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    import datasets

logger = logging.getLogger(__name__)

LINES = 2_000  # that are looked at
TOLERATED = 0.01  # share of lines that may change: a few odd characters are everywhere


def sample_lines(corpus: "datasets.Dataset") -> list[str]:
    """Return up to `LINES` target lines, from all over the corpus."""
    step = max(1, math.ceil(len(corpus) / LINES))
    return list(corpus.select(range(0, len(corpus), step))["target"])


def changed(lines: Sequence[str], rewritten: Sequence[str]) -> list[tuple[str, str]]:
    """Return the lines that differ in more than white space, before and after."""
    return [pair for pair in zip(lines, rewritten, strict=True) if pair[0].split() != pair[1].split()]


def many_changed(lines: Sequence[str], rewritten: Sequence[str]) -> list[tuple[str, str]]:
    """Return `changed(lines, rewritten)` if it is more than the share `TOLERATED` of the lines, else an empty list."""
    found = changed(lines, rewritten)
    return found if len(found) > TOLERATED * len(lines) else []


def first_difference(before: str, after: str) -> tuple[str, str]:
    """Return the first characters in which two texts differ, white space aside."""
    one, other = ("".join(text.split()) for text in (before, after))
    return next((pair for pair in itertools.zip_longest(one, other, fillvalue="") if pair[0] != pair[1]), (one, other))


def warn_of_changes(corpus: "datasets.Dataset", tokenizer: Tokenizer | Vocabulary, *, lowercase: bool) -> None:
    """Log a warning if many target lines cannot be produced exactly, because decoding their subwords gives other text.

    With `lowercase`, differences in case are ignored, as scores ignore them.
    """
    if isinstance(tokenizer, Vocabulary):  # has words that it does not know; and its own marks
        return
    lines = sample_lines(corpus)
    rewritten = tokenizer.decode(tokenizer.encode(lines))
    sides = ([line.lower() for line in side] if lowercase else side for side in (lines, rewritten))
    if found := many_changed(*sides):
        logger.warning(
            "%.0f%% of the target lines cannot be written as they are, which lowers all scores (%r becomes %r): "
            "tokenizer.normalization=spaces keeps them",
            100 * len(found) / len(lines),
            *first_difference(*found[0]),
        )
