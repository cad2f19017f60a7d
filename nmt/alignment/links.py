"""Word alignments: links from attention, alignment error rate, entropy and coverage.

A link `(i, j)` joins source word i and target word j, counted from 0. Weights are [target words, source words].
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from nmt.alignment.pharaoh import Link, Links


class AlignmentScores(NamedTuple):
    """How well links agree with gold."""

    aer: float
    precision: float
    recall: float


def argmax_links(weights: Float[np.ndarray, "target source"]) -> set[Link]:
    """Link every target word to the source word of its greatest weight; a word whose weights are all 0 has no link."""
    if weights.size == 0:
        return set()
    best = weights.argmax(axis=1)
    return {(int(best[j]), j) for j in range(len(weights)) if weights[j, best[j]] > 0}


def threshold_links(weights: Float[np.ndarray, "target source"], threshold: float) -> set[Link]:
    """Link every target word to all source words whose weight is at least `threshold`: none, one or several."""
    return {(int(i), int(j)) for j, i in np.argwhere(weights >= threshold)}


# How weights become links: a function of the weights and of the threshold.
METHODS: dict[str, Callable[[Float[np.ndarray, "target source"], float], set[Link]]] = {
    "argmax": lambda weights, threshold: argmax_links(weights),
    "threshold": threshold_links,
}


class LinkRule(NamedTuple):
    """A method of `METHODS` and its threshold, which `argmax` does not look at."""

    method: str = "argmax"
    threshold: float = 0.0

    def links(self, weights: Float[np.ndarray, "target source"]) -> set[Link]:
        """Return the links that weights mean."""
        return METHODS[self.method](weights, self.threshold)


def intersection(links: Collection[Link], reverse: Collection[Link]) -> set[Link]:
    """Keep the links that both directions agree on (Och & Ney, 2003); the reverse ones are (target, source)."""
    return set(links) & {(i, j) for j, i in reverse}


def alignment_error_rate(hypotheses: Sequence[Collection[Link]], gold: Sequence[Links]) -> AlignmentScores:
    """Score the links A of a corpus against sure links S and possible links P (Och & Ney, 2003).

    AER = 1 - (|A & S| + |A & P|) / (|A| + |S|), precision = |A & P| / |A|, recall = |A & S| / |S|.
    Where a denominator is 0 there is no error to make: AER is 0, precision and recall are 1.

    Raises:
        ValueError: the sequences differ in length.
    """
    in_sure = in_possible = num_links = num_sure = 0
    for links, truth in zip(hypotheses, gold, strict=True):
        chosen = set(links)
        in_sure += len(chosen & truth.sure)
        in_possible += len(chosen & (truth.possible | truth.sure))
        num_links += len(chosen)
        num_sure += len(truth.sure)
    total = num_links + num_sure
    return AlignmentScores(
        aer=1 - (in_sure + in_possible) / total if total else 0.0,
        precision=in_possible / num_links if num_links else 1.0,
        recall=in_sure / num_sure if num_sure else 1.0,
    )


def attention_entropy(weights: Sequence[Float[np.ndarray, "_ _"]]) -> float | None:
    """Mean over target words of the entropy -sum_i p_i ln p_i of their weights, in nats; 0 is a hard alignment.

    A word whose weights are all 0 does not count. None where no word counts.
    """
    total, count = 0.0, 0
    for matrix in weights:
        rows = matrix[matrix.sum(axis=1) > 0].astype(np.float64)
        total -= float((rows * np.log(rows, out=np.zeros_like(rows), where=rows > 0)).sum())
        count += len(rows)
    return max(total, 0.0) / count if count else None


def coverage_deficit(weights: Sequence[Float[np.ndarray, "_ _"]]) -> float | None:
    """Mean over source words i of max(0, 1 - sum_j p_ij), p_ij the weight that target word j gives to source word i.

    0 where every source word gets the attention of a target word or more, 1 where none gets any: what a translation
    leaves out. The terms of the coverage penalty (Wu et al., 2016) without their logarithm. A translation with fewer
    words than its source cannot reach 0. None where there are no source words.
    """
    deficits = [np.maximum(0.0, 1.0 - matrix.sum(axis=0, dtype=np.float64)) for matrix in weights]
    words = sum(len(each) for each in deficits)
    return float(sum(each.sum() for each in deficits)) / words if words else None
