"""Attention weights between words: merged from those between pieces; their entropy and coverage."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float

from nmt.text.words import characters_of

Weights = Float[np.ndarray, "target source"]  # what each target word, or piece, attends to


@dataclass(frozen=True, eq=False)
class Alignment:
    """How much each target word attends to each source word.

    Rows sum to 1, or are 0 where attention points to no word: it is uniform, or entirely on the end mark. Two
    alignments are equal if all fields are, weights bit for bit.
    """

    source_words: list[str]
    target_words: list[str]
    weights: Float[np.ndarray, "target source"]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)

    def __hash__(self) -> int:
        return hash((tuple(self.source_words), tuple(self.target_words)))


def empty_alignment() -> Alignment:
    """Return the alignment of a sentence without words."""
    return Alignment([], [], np.zeros((0, 0)))


def concatenate(parts: Sequence[Alignment]) -> Alignment:
    """Return the alignment of consecutive parts of a sentence; no word attends to another part than its own."""
    import torch  # late: drawing and scoring alignments do not need it

    source_words = [word for part in parts for word in part.source_words]
    target_words = [word for part in parts for word in part.target_words]
    weights = torch.block_diag(*(torch.from_numpy(part.weights) for part in parts))
    return Alignment(source_words, target_words, weights.numpy())


def split_characters(alignment: Alignment) -> Alignment:
    """Split words of East Asian characters, each a piece of the model, into single characters.

    A target character gets the attention of its piece, a source character an equal share of its piece's attention.
    """
    words = alignment.source_words, alignment.target_words
    sources, targets = ([characters_of(word) for word in side] for side in words)
    source_counts, target_counts = (
        np.array([len(characters) for characters in side], dtype=np.int64) for side in (sources, targets)
    )
    if (source_counts == 1).all() and (target_counts == 1).all():
        return alignment
    weights = np.repeat(alignment.weights / source_counts, source_counts, axis=1)
    weights = np.repeat(weights, target_counts, axis=0)
    return Alignment(list(itertools.chain(*sources)), list(itertools.chain(*targets)), weights)


def merge_words(
    weights: Float[np.ndarray, "rows columns"], target_word: Sequence[int], source_word: Sequence[int]
) -> Float[np.ndarray, "target source"]:
    """Attention between words from attention between pieces.

    A source word gets the sum of its pieces' columns, a target word the mean of its pieces' rows. Rows and columns
    beyond the words (end marks) are left out, and rows are normalized again. A row that has nothing left, or that is
    uniform over all pieces and end marks, as those of `fixed_context` are, names no word: it is 0.

    Args:
        weights: attention between pieces, end marks included, without padding.
        target_word: index of the word of each target piece.
        source_word: index of the word of each source piece.
    """
    rows, columns = (np.eye(max(words, default=-1) + 1)[list(words)] for words in (target_word, source_word))
    pieces = weights[: len(target_word), : len(source_word)].astype(np.float64)
    if weights.shape[1] > 1:
        pieces[np.ptp(weights[: len(target_word)], axis=1) == 0] = 0.0
    merged = rows.T @ pieces @ columns
    total = merged.sum(axis=1, keepdims=True)
    return np.divide(merged, total, out=np.zeros_like(merged), where=total > 0)


def attention_entropy(weights: Sequence[Float[np.ndarray, "_ _"]]) -> float | None:
    """Mean over target words of the entropy -sum_i p_i ln p_i of their weights, in nats; 0 is a hard alignment.

    A word whose weights are all 0 does not count. None if no word counts.
    """
    total, count = 0.0, 0
    for matrix in weights:
        rows = matrix[matrix.sum(axis=1) > 0].astype(np.float64)
        total -= float((rows * np.log(rows, out=np.zeros_like(rows), where=rows > 0)).sum())
        count += len(rows)
    return max(total, 0.0) / count if count else None


def coverage_deficit(weights: Sequence[Float[np.ndarray, "_ _"]]) -> float | None:
    """Mean over source words i of max(0, 1 - sum_j p_ij), p_ij the weight that target word j gives to source word i.

    0 where every source word gets the attention of a target word or more, 1 where none gets any: a measure of what a
    translation omits. The terms of the coverage penalty (Wu et al., 2016) without their logarithm. A translation with
    fewer words than its source cannot reach 0. None if there are no source words.
    """
    deficits = [np.maximum(0.0, 1.0 - matrix.sum(axis=0, dtype=np.float64)) for matrix in weights]
    num_words = sum(len(deficit) for deficit in deficits)
    return float(sum(deficit.sum() for deficit in deficits)) / num_words if num_words else None
