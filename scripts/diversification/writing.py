"""The text to train on: shares of the originals and of the translations, without duplicates, and where each is from."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from diversification.teachers import FORWARD
from diversification.text import Text
from diversification.translating import Part
from nmt.errors import UserError, write_errors
from nmt.translate import replace_together

ORIGINAL = "original"


class Pair(NamedTuple):
    """A pair of sentences, and the line of the training text that it was made from."""

    source: str
    target: str
    line: int


@dataclass
class Counts:
    """Number of pairs of an origin (original, forward-1, ...): selected, empty, duplicate and written."""

    name: str
    share: int = 0
    empty: int = 0
    duplicates: int = 0
    written: int = 0


def write(text: Text, parts: Sequence[Part], shares: Mapping[str, float], seed: int, folder: Path) -> list[Counts]:
    """Write the two sides and train.tsv: `origin<TAB>line`, as many lines; all replace older ones at the end.

    First come the originals, then the translations of each teacher, of each the share that is asked for. A pair with
    an empty translation is left out, and so is a translation whose pair has been written already.

    Raises:
        UserError: nothing is left, or a file cannot be written.
    """
    names = [*(f"train.{suffix}" for suffix in text.suffixes), "train.tsv"]
    seen: set[tuple[str, str]] = set()
    counts = []
    with write_errors(folder), replace_together(*(folder / name for name in names)) as files:
        for number, (kind, name, pairs) in enumerate(origins(text, parts)):
            count = Counts(name)
            counts.append(count)
            for index in chosen(len(pairs), shares[kind], (seed, number)):
                pair, count.share = pairs[index], count.share + 1
                if is_wanted(pair, seen, count):
                    seen.add(pair[:2])
                    lines = (pair.source, pair.target, f"{name}\t{pair.line}")
                    for file, line in zip(files, lines, strict=True):
                        file.write(f"{line}\n")
        if not seen:
            raise UserError("no pair is left to write: the shares are too small, or all translations are empty")
    return counts


def origins(text: Text, parts: Sequence[Part]) -> Iterator[tuple[str, str, list[Pair]]]:
    """Yield kind (original, forward or backward), name and pairs of the original text and of every teacher."""
    yield ORIGINAL, ORIGINAL, list(map(Pair, text.sources, text.targets, text.lines))
    for part in parts:
        kept, _ = text.sides(part.teacher.direction)
        pairs = [
            Pair(sentence, each, line) if part.teacher.direction == FORWARD else Pair(each, sentence, line)
            for sentence, translations, line in zip(kept, part.translations, text.lines, strict=True)
            for each in translations
        ]
        yield part.teacher.direction, part.teacher.name, pairs


def chosen(number: int, share: float, seed: Sequence[int]) -> Iterator[int]:
    """Yield a share of 0 ... number - 1 in order: for 2.3, each twice, and a random 30% a third time."""
    whole = int(share)
    size = round((share - whole) * number)
    more = set(np.random.default_rng(seed).permutation(number)[:size].tolist())
    for index in range(number):
        yield from [index] * (whole + (index in more))


def is_wanted(pair: Pair, seen: set[tuple[str, str]], count: Counts) -> bool:
    """Return whether a pair is to be written, and count it."""
    is_empty = not (pair.source.strip() and pair.target.strip())
    is_duplicate = not is_empty and count.name != ORIGINAL and pair[:2] in seen
    count.empty += is_empty
    count.duplicates += is_duplicate
    count.written += not (is_empty or is_duplicate)
    return not (is_empty or is_duplicate)
