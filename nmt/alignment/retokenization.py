"""Transfer weights and links to a different tokenization of the same texts into words."""

from collections.abc import Collection, Sequence

import numpy as np
from jaxtyping import Float

from nmt.alignment.pharaoh import Link, Links
from nmt.alignment.weights import Alignment


def retokenize_weights(
    alignment: Alignment, source_words: Sequence[str], target_words: Sequence[str]
) -> Float[np.ndarray, "target source"] | None:
    """Return the weights between other words of the same texts, treating a word's weight as even over its characters;
    None if the words do not form the same texts.
    """
    source = shared_characters(alignment.source_words, source_words)
    target = shared_characters(alignment.target_words, target_words)
    if source is None or target is None:
        return None
    return (target / target.sum(axis=0)).T @ alignment.weights @ (source / source.sum(axis=1, keepdims=True))


def split_links(
    links: Links, source_words: Sequence[str], target_words: Sequence[str], source_line: str, target_line: str
) -> Links | None:
    """Turn links between the space-separated parts of two lines into links between the words cut from these parts.

    Of two linked parts, words are linked with words and punctuation with punctuation; if that gives no link, all with
    all. None if the words are not cut from the lines.
    """
    source = shared_characters(source_words, source_line.split())
    target = shared_characters(target_words, target_line.split())
    if source is None or target is None or spans_parts(source) or spans_parts(target):
        return None
    source_part, target_part = source.argmax(axis=1).tolist(), target.argmax(axis=1).tolist()
    source_mark, target_mark = (list(map(is_punctuation, words)) for words in (source_words, target_words))

    def split(linked: Collection[Link]) -> frozenset[Link]:
        pairs = {
            (i, j): (a, b) for i, a in enumerate(source_part) for j, b in enumerate(target_part) if (a, b) in linked
        }
        same_kind = {(i, j): link for (i, j), link in pairs.items() if source_mark[i] == target_mark[j]}
        covered = set(same_kind.values())
        return frozenset(pair for pair, link in pairs.items() if pair in same_kind or link not in covered)

    return Links(split(links.sure), split(links.possible))


def spans_parts(characters: Float[np.ndarray, "words parts"]) -> bool:
    """Return whether a word has characters of several parts."""
    return bool(np.count_nonzero(characters, axis=1).max(initial=0) > 1)


def shared_characters(words: Sequence[str], others: Sequence[str]) -> Float[np.ndarray, "words others"] | None:
    """Return how many characters each word shares with each of the others; None if they form different texts."""
    if "".join(words) != "".join(others) or "" in words or "" in others:
        return None
    counts = np.zeros((len(words), len(others)))
    word_of_character, other_of_character = (
        np.repeat(np.arange(len(side)), [len(word) for word in side]) for side in (words, others)
    )
    np.add.at(counts, (word_of_character, other_of_character), 1.0)
    return counts


def is_punctuation(word: str) -> bool:
    """Return whether a word is punctuation."""
    return not any(map(str.isalnum, word))
