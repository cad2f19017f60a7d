"""Links between words, from attention weights.

A link `(i, j)` joins source word i and target word j, counted from 0. Weights are [target words, source words].
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from nmt.alignment.pharaoh import Link
from nmt.alignment.weights import Alignment, Weights


def argmax_links(weights: Weights) -> set[Link]:
    """Link every target word to the source word of its greatest weight; a word whose weights are all 0 has no link."""
    if weights.size == 0:
        return set()
    best = weights.argmax(axis=1)
    return {(int(best[j]), j) for j in range(len(weights)) if weights[j, best[j]] > 0}


def threshold_links(weights: Weights, threshold: float) -> set[Link]:
    """Link every target word to all source words whose weight is at least `threshold`: none, one or several."""
    return {(int(i), int(j)) for j, i in np.argwhere(weights >= threshold)}


class LinkRule(NamedTuple):
    """How weights become links: `argmax`, or `threshold` with its threshold."""

    method: str = "argmax"
    threshold: float = 0.0

    def links(self, weights: Weights) -> set[Link]:
        """Return the links that the weights give."""
        return argmax_links(weights) if self.method == "argmax" else threshold_links(weights, self.threshold)


def word_links(
    alignments: Sequence[Alignment], sources: Sequence[str], targets: Sequence[str], rule: LinkRule
) -> list[set[Link] | None]:
    """Return the links of each sentence pair, None if the words of an alignment are not those between spaces."""
    return [
        rule.links(alignment.weights)
        if (len(alignment.source_words), len(alignment.target_words)) == (len(source.split()), len(target.split()))
        else None
        for alignment, source, target in zip(alignments, sources, targets, strict=True)
    ]


def intersection(links: Collection[Link], reverse: Collection[Link]) -> set[Link]:
    """Keep the links that both directions agree on (Och & Ney, 2003); the reverse ones are (target, source)."""
    return set(links) & {(i, j) for j, i in reverse}
