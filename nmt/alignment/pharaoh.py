"""Pharaoh notation of word alignments: `0-0 1-2 1?3`.

A link `(i, j)` joins source word i and target word j, counted from 0. In files of gold, words are the parts between
spaces of a line as it is written: in pre-segmented text, its pieces. Links of translations count their words.
"""

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from nmt.errors import UserError
from nmt.text.vocabulary import WORD_MARK

Link = tuple[int, int]

LINK = re.compile(r"([0-9]{1,9})([-?])([0-9]{1,9})")


class Links(NamedTuple):
    """Gold links of a sentence pair: S, and P that contains S (Och & Ney, 2003)."""

    sure: frozenset[Link]
    possible: frozenset[Link]


def parse_pharaoh(line: str, place: str = "alignment") -> Links:
    """Read a line of Pharaoh notation, `0-0 1-2 1?3`, where `i-j` is a sure link and `i?j` only a possible one; raise
    UserError, with a message that starts with `place`, for a link of neither form.
    """
    sure: set[Link] = set()
    possible: set[Link] = set()
    for item in line.split():
        match = LINK.fullmatch(item)
        if match is None:
            raise UserError(
                f"{place}: {item[:40]!r} is not an alignment link: write source-target, or source?target where only "
                "possible, word positions counted from 0, as in 0-0 1?2"
            )
        link = int(match[1]), int(match[3])
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return Links(frozenset(sure), frozenset(possible))


def format_pharaoh(links: Links | Collection[Link]) -> str:
    """Write links in Pharaoh notation, ordered by source, then target word; a plain collection has sure links only."""
    if not isinstance(links, Links):
        links = Links(frozenset(links), frozenset(links))
    return " ".join(f"{i}{'-' if (i, j) in links.sure else '?'}{j}" for i, j in sorted(links.possible | links.sure))


def format_words(*sides: Sequence[str]) -> str:
    """Write words as other aligners read them, `the cat ||| le chat`; in a word U+2581 is white space, ¦¦¦ is |||.

    An empty word is U+2581, too, as links count it: a model may write a word mark with nothing after it.
    """
    written = ([re.sub(r"\s", WORD_MARK, word or " ").replace("|||", "¦¦¦") for word in words] for words in sides)
    return " ||| ".join(map(" ".join, written))


def check_links(links: Links, num_source: int, num_target: int, place: str = "alignment") -> None:
    """Raise UserError for a link to a word that the sentence pair does not have."""
    outside = [(i, j) for i, j in links.possible if i >= num_source or j >= num_target]
    if outside:
        i, j = min(outside)
        raise UserError(
            f"{place}: link {i}-{j} points outside the pair, which has {num_source} source and {num_target} target "
            "words: positions count from 0 and come as source-target; check that the files are in step"
        )
