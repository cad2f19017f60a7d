"""Weights and links between other words of the same texts."""

from collections.abc import Collection, Sequence

import numpy as np
from jaxtyping import Float

from nmt.alignment.pharaoh import Link, Links
from nmt.alignment.weights import Alignment


def recut(
    found: Alignment, source_words: Sequence[str], target_words: Sequence[str]
) -> Float[np.ndarray, "target source"] | None:
    """Return weights between other words of the same two texts, taking those of a word for even over its characters.

    None where the words do not make the same texts.
    """
    source, target = shared(found.source_words, source_words), shared(found.target_words, target_words)
    if source is None or target is None:
        return None
    return (target / target.sum(axis=0)).T @ found.weights @ (source / source.sum(axis=1, keepdims=True))


def split_links(
    links: Links, source_words: Sequence[str], target_words: Sequence[str], source_line: str, target_line: str
) -> Links | None:
    """Return links between the parts between spaces of two lines as links between words that are cut from them.

    Of two linked parts, words are linked with words and marks with marks; where that leaves no link, all with all.
    None where the words are not cut from the lines.
    """
    source, target = shared(source_words, source_line.split()), shared(target_words, target_line.split())
    if (
        source is None
        or target is None
        or max(np.count_nonzero(each, axis=1).max(initial=0) for each in (source, target)) > 1
    ):
        return None
    parts = source.argmax(axis=1).tolist(), target.argmax(axis=1).tolist()

    def cut(given: Collection[Link]) -> frozenset[Link]:
        pairs = {(i, j): (a, b) for i, a in enumerate(parts[0]) for j, b in enumerate(parts[1]) if (a, b) in given}
        alike = {(i, j): link for (i, j), link in pairs.items() if is_mark(source_words[i]) == is_mark(target_words[j])}
        return frozenset(pair for pair, link in pairs.items() if pair in alike or link not in alike.values())

    return Links(cut(links.sure), cut(links.possible))


def shared(words: Sequence[str], others: Sequence[str]) -> Float[np.ndarray, "words others"] | None:
    """Return how many characters each word shares with each of the others; None where they make different texts."""
    if "".join(words) != "".join(others) or "" in words or "" in others:
        return None
    counts = np.zeros((len(words), len(others)))
    np.add.at(counts, tuple([index for index, word in enumerate(side) for _ in word] for side in (words, others)), 1.0)
    return counts


def is_mark(word: str) -> bool:
    """Tell whether a word is punctuation."""
    return not any(map(str.isalnum, word))
