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

SAMPLED_LINES = 2_000
MAX_CHANGED_FRACTION = 0.01  # a few odd characters are everywhere


def sample_lines(corpus: "datasets.Dataset") -> list[str]:
    """Return up to `SAMPLED_LINES` target lines, from all over the corpus."""
    step = max(1, math.ceil(len(corpus) / SAMPLED_LINES))
    return list(corpus.select(range(0, len(corpus), step))["target"])


def changed_lines(lines: Sequence[str], rewritten: Sequence[str]) -> list[tuple[str, str]]:
    """Return the lines that differ in more than white space, before and after."""
    return [pair for pair in zip(lines, rewritten, strict=True) if pair[0].split() != pair[1].split()]


def many_changed_lines(lines: Sequence[str], rewritten: Sequence[str]) -> list[tuple[str, str]]:
    """Return `changed_lines(lines, rewritten)` if they exceed `MAX_CHANGED_FRACTION` of the lines, else none."""
    changed = changed_lines(lines, rewritten)
    return changed if len(changed) > MAX_CHANGED_FRACTION * len(lines) else []


def first_difference(before: str, after: str) -> tuple[str, str]:
    """Return the first characters in which two texts differ, white space aside."""
    before, after = "".join(before.split()), "".join(after.split())
    pairs = itertools.zip_longest(before, after, fillvalue="")
    return next((pair for pair in pairs if pair[0] != pair[1]), (before, after))


def warn_of_changes(
    corpus: "datasets.Dataset", tokenizer: Tokenizer | Vocabulary, *, lowercase: bool, is_learned: bool
) -> None:
    """Log a warning if many target lines cannot be produced exactly, because decoding their subwords gives other text.

    `lowercase`: differences in case are ignored, as scores ignore them. `is_learned`: keys can change these subwords.
    """
    if isinstance(tokenizer, Vocabulary):  # it has unknown words, and marks of its own
        return
    lines = sample_lines(corpus)
    rewritten = tokenizer.decode(tokenizer.encode(lines))
    sides = ([line.lower() for line in side] if lowercase else side for side in (lines, rewritten))
    if changed := many_changed_lines(*sides):
        logger.warning(
            "%.0f%% of the target lines cannot be written as they are, which lowers all scores (%r becomes %r): %s",
            100 * len(changed) / len(lines),
            *first_difference(*changed[0]),
            "tokenizer.normalization=spaces keeps them" if is_learned else "other subwords would keep them",
        )
