"""Rank correlation of two weightings of the source words, such as attention and saliency."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Array = np.ndarray


class Correlation(NamedTuple):
    """Rank correlations, each from -1 (the opposite order) to 1 (the same order); None if no row has one."""

    spearman: float | None
    kendall: float | None


def rank_correlation(first: Sequence[Float[Array, "_ _"]], second: Sequence[Float[Array, "_ _"]]) -> Correlation:
    """Correlate two weightings of the same sentences, row by row, and average over the rows of all sentences.

    Spearman's rho is Pearson's correlation of the ranks, ties having their mean rank. Kendall's tau-b is that of the
    signs of the differences between every two weights; Jain & Wallace (2019) compare attention with gradients by
    Kendall's tau. A row that is constant in either weighting has no order and does not count.
    """
    correlations = []
    for a, b in zip(first, second, strict=True):
        assert a.shape == b.shape, "both weigh the same words"
        correlations += [row_correlation(x, y) for x, y in zip(a, b, strict=True) if np.ptp(x) > 0 < np.ptp(y)]
    if not correlations:
        return Correlation(None, None)
    return Correlation(*(float(mean) for mean in np.mean(correlations, axis=0)))


def row_correlation(first: Float[Array, " words"], second: Float[Array, " words"]) -> tuple[float, float]:
    """Return (rho, tau-b) of two weightings, neither of them constant."""
    signs = [np.sign(weights[:, None] - weights).astype(np.float64) for weights in (first, second)]
    ranks = [sign.sum(axis=1) for sign in signs]  # twice the ranks, counted from their mean
    return _cosine(*ranks), _cosine(*signs)


def _cosine(a: Float[Array, "*shape"], b: Float[Array, "*shape"]) -> float:
    return float((a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()))
