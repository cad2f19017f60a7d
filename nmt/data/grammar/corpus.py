"""The built-in corpus: English-French pairs with gold word alignments, from a synchronous grammar of our own.

The French sentence is a function of the English one, so a perfect translator scores a BLEU of 100. Words are in
lexicon.toml and lexicon.py, and become phrases (nouns.py, verbs.py), clauses (clauses.py) and sentences (sentences.py).
"""

import hashlib
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import datasets
import pyarrow as pa

from nmt.config.schema import GrammarConfig
from nmt.data.grammar.chooser import Chooser
from nmt.data.grammar.lexicon import Lexicon
from nmt.data.grammar.phrase import punctuation, spell
from nmt.data.grammar.sentences import Sentences
from nmt.data.tables import SPLITS, Corpus, source_code
from nmt.errors import UserError, unknown

CONTINUE = 0.92  # probability of one more word when a length is drawn: lengths are geometric
MAX_REJECTED = 2_000  # rejected sentences in a row after which no more are thought to exist within the bounds


class GrammarCorpus(Corpus):
    """Generated pairs (`data=grammar`), kept in `data.cache_dir`: generating them takes seconds."""

    def load(self, split: str) -> datasets.Dataset:
        """Return a split, stored under a digest of all that determines it: settings, words and rules."""
        digest = hashlib.sha256(source_code(Path(__file__).parent))
        digest.update(f"{self.config.grammar} {split}".encode())

        def build() -> list[pa.Table]:
            pairs = generate(self.config.grammar, split)
            return [pa.table({name: [getattr(pair, name) for pair in pairs] for name in AlignedPair._fields})]

        return self.stored(digest.hexdigest(), build)

    def has_split(self, split: str) -> bool:
        return split in SPLITS

    has_gold = has_split  # it aligns all pairs


class AlignedPair(NamedTuple):
    """A sentence, its translation and their gold alignment in Pharaoh notation.

    `alignment` counts words between spaces from 0, source first: `i-j` is a sure link, `i?j` a possible one.
    """

    source: str
    target: str
    alignment: str


def generate(config: GrammarConfig, split: str) -> list[AlignedPair]:
    """Return the distinct pairs of one split; the same pairs in the same order wherever it runs.

    The checksum of a sentence decides its split, so splits never overlap, whatever their sizes. Raises UserError if
    there is no such split, or not that many sentences within the bounds on length.
    """
    sizes = (config.train_size, config.validation_size, config.test_size, config.long_size)
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    size, shortest = sizes[SPLITS.index(split)], config.min_length
    if split == "test_long":
        shortest = max(config.long_length, config.min_length)
    if shortest > config.max_length:
        bound = "long_length" if split == "test_long" else "min_length"
        raise UserError(f"data.grammar.{bound}={shortest} is above data.grammar.max_length={config.max_length}")
    choose = Chooser(f"{config.seed} {split}")
    pairs = list(islice(_distinct(choose, split, shortest, config.max_length), size))
    if len(pairs) < size:
        raise UserError(
            f"data.grammar: only {len(pairs)} of {size} {split} sentences of {shortest} to {config.max_length} words "
            "could be found; ask for fewer or widen the bounds on length"
        )
    return pairs


def split_of(source: str) -> str:
    """The split that a sentence belongs to: a tenth each to validation, test and test_long, the rest to train."""
    bucket = zlib.crc32(source.encode()) % 10
    return SPLITS[bucket + 1] if bucket < 3 else "train"


def sentences(choose: Chooser, shortest: int, longest: int, lexicon: Lexicon | None = None) -> Iterator[AlignedPair]:
    """Endless random pairs, most of them about as long as asked for: shorter ones are more frequent."""
    grammar = Sentences(lexicon or Lexicon(), choose)
    while True:
        yield AlignedPair(*spell(grammar.sentence(_length(choose, shortest, longest)) + punctuation(".")))


def _distinct(choose: Chooser, split: str, shortest: int, longest: int) -> Iterator[AlignedPair]:
    """Pairs that belong to `split`, are within the bounds and have not been seen; ends when none turns up."""
    seen: set[str] = set()
    rejected = 0
    for pair in sentences(choose, shortest, longest):
        if (
            pair.source not in seen
            and split_of(pair.source) == split
            and shortest <= len(pair.source.split()) <= longest
        ):
            seen.add(pair.source)
            rejected = 0
            yield pair
        elif (rejected := rejected + 1) == MAX_REJECTED:
            return


def _length(choose: Chooser, shortest: int, longest: int) -> int:
    """A length within the bounds: geometric, and drawn again where it is too long."""
    while True:
        length = shortest
        while length <= longest and choose.chance(CONTINUE):
            length += 1
        if length <= longest:
            return length
