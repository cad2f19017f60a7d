"""Accuracy and macro-F1 of a classifier, with 95% intervals."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

Z = 1.959964  # two-sided 95% of the normal distribution
RESAMPLES = 1_000
Array = np.ndarray


class Interval(NamedTuple):
    """A value and the ends of its 95% interval."""

    value: float
    low: float
    high: float

    def columns(self, name: str) -> dict[str, float]:
        """Return the three as columns of a table."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


def wilson(successes: int, total: int) -> Interval:
    """Return a proportion with Wilson's score interval  (Wilson, 1927), which also holds near 0 and 1."""
    proportion, spread = successes / total, Z * Z / total
    center = (proportion + spread / 2) / (1 + spread)
    half_width = math.sqrt(spread * (proportion * (1 - proportion) + spread / 4)) / (1 + spread)
    return Interval(proportion, max(0.0, center - half_width), min(1.0, center + half_width))


def confusion(gold: Sequence[int], predicted: Sequence[int], classes: int) -> Int[Array, "classes classes"]:
    """Return how often each class, by row, was predicted as each class, by column."""
    counts = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(counts, (np.asarray(gold), np.asarray(predicted)), 1)
    return counts


def macro_f1(counts: Int[Array, "*resamples classes classes"]) -> Float[Array, "*resamples"]:
    """Return the mean over classes of F1 = 2 TP / (2 TP + FP + FN), of those that occur or are predicted."""
    doubled_hits = 2.0 * np.diagonal(counts, axis1=-2, axis2=-1)
    sizes = counts.sum(axis=-1) + counts.sum(axis=-2)
    f1 = np.divide(doubled_hits, sizes, out=np.zeros_like(doubled_hits), where=sizes > 0)
    mean: Float[Array, "*resamples"] = f1.sum(axis=-1) / (sizes > 0).sum(axis=-1)
    return mean


def bootstrap_f1(counts: Int[Array, "classes classes"]) -> Interval:
    """Return macro-F1 with the percentile interval of 1,000 resamples of the examples.

    Drawing examples with replacement draws the cells of the confusion matrix from a multinomial distribution.
    """
    total = int(counts.sum())
    resamples = np.random.default_rng(1).multinomial(total, counts.ravel() / total, size=RESAMPLES)
    low, high = np.quantile(macro_f1(resamples.reshape(RESAMPLES, *counts.shape)), (0.025, 0.975))
    return Interval(float(macro_f1(counts)), float(low), float(high))
