"""Transfer weights and links to a different division of the same texts into words."""

from collections.abc import Collection, Sequence

import numpy as np
from jaxtyping import Float

from nmt.alignment.pharaoh import Link, Links
from nmt.alignment.weights import Alignment


def recut(
    found: Alignment, source_words: Sequence[str], target_words: Sequence[str]
) -> Float[np.ndarray, "target source"] | None:
    """Return the weights between other words of the same texts, treating a word's weight as even over its characters.

    None if the words do not form the same texts.
    """
    source, target = shared(found.source_words, source_words), shared(found.target_words, target_words)
    if source is None or target is None:
        return None
    return (target / target.sum(axis=0)).T @ found.weights @ (source / source.sum(axis=1, keepdims=True))


def split_links(
    links: Links, source_words: Sequence[str], target_words: Sequence[str], source_line: str, target_line: str
) -> Links | None:
    """Turn links between the space-separated parts of two lines into links between the words cut from these parts.

    Of two linked parts, words are linked with words and punctuation with punctuation; if that gives no link, all with
    all. None if the words are not cut from the lines.
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
        # Words with words, punctuation with punctuation. A link that has no such pair joins all of its words.
        alike = {(i, j): link for (i, j), link in pairs.items() if is_mark(source_words[i]) == is_mark(target_words[j])}
        kept_links = set(alike.values())
        return frozenset(pair for pair, link in pairs.items() if pair in alike or link not in kept_links)

    return Links(cut(links.sure), cut(links.possible))


def shared(words: Sequence[str], others: Sequence[str]) -> Float[np.ndarray, "words others"] | None:
    """Return how many characters each word shares with each of the others; None if they form different texts."""
    if "".join(words) != "".join(others) or "" in words or "" in others:
        return None
    counts = np.zeros((len(words), len(others)))
    word_of_character, other_of_character = (
        np.repeat(np.arange(len(side)), [len(word) for word in side]) for side in (words, others)
    )
    np.add.at(counts, (word_of_character, other_of_character), 1.0)
    return counts


def is_mark(word: str) -> bool:
    """Return whether a word is punctuation."""
    return not any(map(str.isalnum, word))
