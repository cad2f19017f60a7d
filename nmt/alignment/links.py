"""Links between words, from attention weights.

A link `(i, j)` joins source word i and target word j, counted from 0. Weights are [target words, source words].
"""

from collections.abc import Collection, Sequence

import numpy as np

from nmt.alignment.pharaoh import Link
from nmt.alignment.weights import Alignment, Weights
from nmt.config.schema import LinksConfig


def argmax_links(weights: Weights) -> set[Link]:
    """Link every target word to the source word of its greatest weight; a word whose weights are all 0 has no link."""
    if weights.size == 0:
        return set()
    best = weights.argmax(axis=1)
    return {(int(best[j]), j) for j in range(len(weights)) if weights[j, best[j]] > 0}


def threshold_links(weights: Weights, threshold: float) -> set[Link]:
    """Link every target word to all source words whose weight is at least `threshold`: none, one or several."""
    return {(int(i), int(j)) for j, i in np.argwhere(weights >= threshold)}


def links_of(weights: Weights, config: LinksConfig) -> set[Link]:
    """Return the links that weights become by `config.method`."""
    return argmax_links(weights) if config.method == "argmax" else threshold_links(weights, config.threshold)


def word_links(
    alignments: Sequence[Alignment], sources: Sequence[str], targets: Sequence[str], config: LinksConfig
) -> list[set[Link] | None]:
    """Return the links of each sentence pair, None if the words of an alignment are not those between spaces."""
    return [
        links_of(alignment.weights, config)
        if (len(alignment.source_words), len(alignment.target_words)) == (len(source.split()), len(target.split()))
        else None
        for alignment, source, target in zip(alignments, sources, targets, strict=True)
    ]


def intersection(links: Collection[Link], reverse: Collection[Link]) -> set[Link]:
    """Keep the links that both directions agree on (Och & Ney, 2003); the reverse ones are (target, source)."""
    return set(links) & {(i, j) for j, i in reverse}
