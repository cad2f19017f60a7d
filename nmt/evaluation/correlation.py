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
    found = []
    for one, other in zip(first, second, strict=True):
        assert one.shape == other.shape, "both weigh the same words"
        found += [row_correlation(a, b) for a, b in zip(one, other, strict=True) if np.ptp(a) > 0 < np.ptp(b)]
    return Correlation(*(float(mean) for mean in np.mean(found, axis=0))) if found else Correlation(None, None)


def row_correlation(one: Float[Array, " words"], other: Float[Array, " words"]) -> tuple[float, float]:
    """Return (rho, tau-b) of two weightings, neither of them constant."""
    signs = [np.sign(weights[:, None] - weights).astype(np.float64) for weights in (one, other)]
    ranks = [each.sum(axis=1) for each in signs]  # twice the ranks, counted from their mean
    return _cosine(*ranks), _cosine(*signs)


def _cosine(one: Float[Array, "*shape"], other: Float[Array, "*shape"]) -> float:
    return float((one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum()))
