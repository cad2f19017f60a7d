"""Random segmentations that are reproducible by seed.

sentencepiece's own sampling is not reproducible: it draws from Abseil's generators, which are salted per process, so
training could not be resumed exactly. Both algorithms segment words independently, so results per word are cached.
"""

import heapq
import math
import random
import re
from abc import ABC, abstractmethod
from bisect import bisect
from functools import lru_cache
from itertools import accumulate
from typing import Any, final

from nmt.errors import UserError
from nmt.text.sentencepiece_model import parse
from nmt.text.vocabulary import WORD_MARK

# One mark or several, and the characters up to the next.
WORD = re.compile(f"{WORD_MARK}*[^{WORD_MARK}]+|{WORD_MARK}+")
CACHED_WORDS = 50_000  # of a BPE model
CACHED_CHARACTERS = 500_000  # of the words of a unigram model; about half a KB each
Agenda = list[tuple[float, int, int, str]]  # of merges: minus the score, the positions of the two symbols, the pair
# Of the pieces that may end at a position of a word: their starts, ids, and cumulative weights.
Arrivals = tuple[list[int], list[list[int]], list[float]]
UNKNOWN_PENALTY = 10.0  # nats below the least likely piece, as in sentencepiece


class Sampler(ABC):
    """Draws segmentations of lines by a sentencepiece processor; the subclasses say what `alpha` does."""

    def __init__(self, processor: Any, alpha: float) -> None:
        self.alpha = alpha
        ids = range(processor.get_piece_size())
        special = (processor.is_control, processor.is_unknown, processor.is_unused, processor.is_byte)
        self.ids = {processor.id_to_piece(i): i for i in ids if not any(kind(i) for kind in special)}
        self._spellings = {piece: [i] for piece, i in self.ids.items()}  # one list for all words that have the piece
        self.scores = {piece: float(processor.get_score(i)) for piece, i in self.ids.items()}
        self._normalize = processor.normalize
        self.unknown_id = processor.unk_id()
        self._bytes = [processor.piece_to_id(f"<0x{byte:02X}>") for byte in range(256)]  # unknown without byte fallback
        self._crosses_words = any(WORD_MARK in piece.lstrip(WORD_MARK) for piece in self.ids)

    def sample(self, lines: list[str], seed: int) -> list[list[int]]:
        """Return the ids of a segmentation of each line; the same for the same lines and seed."""
        generator = random.Random(seed)
        drawn = ([i for word in self._words(line) for i in self._draw(word, generator)] for line in lines)
        return [self._join_unknown(ids) if self.unknown_id in ids else ids for ids in drawn]

    def _join_unknown(self, ids: list[int]) -> list[int]:
        """Return one `unk` for several in a row, as sentencepiece does."""
        return [i for i, before in zip(ids, [None, *ids], strict=False) if i != self.unknown_id or i != before]

    def _words(self, line: str) -> list[str]:
        text: str = self._normalize(line)
        return [text] if text and self._crosses_words else WORD.findall(text)

    def _spell(self, piece: str) -> list[int]:
        """Return the id of a piece, or those of its bytes."""
        spelling = self._spellings.get(piece)
        return [self._bytes[byte] for byte in piece.encode()] if spelling is None else spelling

    @abstractmethod
    def _draw(self, word: str, generator: random.Random) -> list[int]: ...


@final
class Unigram(Sampler):
    """P(segmentation | word) ~ prod_i P(piece_i)^alpha  (Kudo, 2018): forward filtering, backward sampling."""

    def __init__(self, processor: Any, alpha: float) -> None:
        super().__init__(processor, alpha)
        self.unknown = min(self.scores.values()) - UNKNOWN_PENALTY
        self.longest = max(map(len, self.ids))
        self._lattices: dict[str, list[Arrivals]] = {}
        self._room = CACHED_CHARACTERS

    def _lattice(self, word: str) -> list[Arrivals]:
        """Return `_filter(word)`, kept while there is room: a whole line without spaces is a word, seldom seen again.

        The first words stay, as the frequent ones are among them; sentences that come in turn would replace each other.
        """
        lattice = self._lattices.get(word)
        if lattice is None:
            lattice = self._filter(word)
            if len(word) <= self._room:
                self._room -= len(word)
                self._lattices[word] = lattice
        return lattice

    def _filter(self, word: str) -> list[Arrivals]:
        lattice: list[Arrivals] = []
        totals = [0.0]  # totals[end]: log of the total weight of the segmentations of word[:end]
        for end in range(1, len(word) + 1):
            earliest = max(0, end - self.longest)
            starts = [s for s in range(earliest, end) if word[s:end] in self.ids or s == end - 1]
            logs = [totals[s] + self.alpha * self.scores.get(word[s:end], self.unknown) for s in starts]
            largest = max(logs)
            sums = list(accumulate(math.exp(log - largest) for log in logs))
            totals.append(largest + math.log(sums[-1]))
            lattice.append((starts, [self._spell(word[s:end]) for s in starts], sums))
        return lattice

    def _draw(self, word: str, generator: random.Random) -> list[int]:
        lattice, end, pieces = self._lattice(word), len(word), []
        while end:
            starts, ids, sums = lattice[end - 1]
            chosen = bisect(sums, generator.random() * sums[-1]) if len(starts) > 1 else 0
            pieces.append(ids[chosen])
            end = starts[chosen]
        return [i for piece in reversed(pieces) for i in piece]


@final
class BPE(Sampler):
    """Every merge is dropped with probability alpha: BPE-dropout  (Provilkov et al., 2020).

    As in sentencepiece, a dropped merge is dropped for good (the paper draws again before each merge), and user-defined
    pieces are neither split nor merged.
    """

    def __init__(self, processor: Any, alpha: float) -> None:
        super().__init__(processor, alpha)
        pieces = parse(processor.serialized_model_proto()).pieces
        self._defined = {piece.piece for piece in pieces if piece.type == piece.USER_DEFINED}
        longest_first = sorted(map(re.escape, self._defined), key=len, reverse=True)
        self._symbols = re.compile("|".join([*longest_first, "."]), re.DOTALL)
        self._merged = lru_cache(CACHED_WORDS)(self._without_dropout)

    def _without_dropout(self, word: str) -> tuple[list[int], int]:
        """Return the segmentation and the number of its merges."""
        symbols = self._merge(word, math.inf, None)
        return [i for symbol in symbols for i in self._spell(symbol)], len(self._symbols.findall(word)) - len(symbols)

    def _draw(self, word: str, generator: random.Random) -> list[int]:
        ids, merges = self._merged(word)
        # The number of merges before the first that is dropped is geometric, and mostly exceeds their number.
        kept = math.log(1.0 - generator.random()) / math.log1p(-self.alpha) if self.alpha < 1 else 0.0
        if kept >= merges:
            return ids
        return [i for symbol in self._merge(word, int(kept), generator) for i in self._spell(symbol)]

    def _merge(self, word: str, kept: float, generator: random.Random | None) -> list[str]:
        """Merge the best pair repeatedly; after `kept` merges one is dropped, then others at random."""
        symbols = self._symbols.findall(word)
        before, after = list(range(-1, len(symbols) - 1)), [*range(1, len(symbols)), -1]
        agenda: Agenda = []
        for left in range(len(symbols) - 1):
            self._consider(symbols, left, left + 1, agenda)
        while agenda:
            _, left, right, pair = heapq.heappop(agenda)
            if not symbols[left] or not symbols[right] or symbols[left] + symbols[right] != pair:
                continue  # one of the two has been merged with another
            kept -= 1
            if kept < 0 and generator is not None and (kept == -1 or generator.random() < self.alpha):
                continue
            symbols[left], symbols[right] = pair, ""
            after[left] = after[right]
            if after[left] >= 0:
                before[after[left]] = left
            self._consider(symbols, before[left], left, agenda)
            self._consider(symbols, left, after[left], agenda)
        return [symbol for symbol in symbols if symbol]

    def _consider(self, symbols: list[str], left: int, right: int, agenda: Agenda) -> None:
        pair = symbols[left] + symbols[right]
        is_defined = not self._defined.isdisjoint((symbols[left], symbols[right]))
        if left >= 0 and right >= 0 and pair in self.scores and not is_defined:
            heapq.heappush(agenda, (-self.scores[pair], left, right, pair))


SAMPLERS: dict[int, type[Sampler]] = {1: Unigram, 2: BPE}  # by sentencepiece's model type


def build_sampler(processor: Any, alpha: float) -> Sampler:
    """Return a sampler of the processor's segmentations; raise UserError for a model of another type."""
    kind = parse(processor.serialized_model_proto()).trainer_spec.model_type
    if kind not in SAMPLERS:
        raise UserError("tokenizer.sampling needs a unigram or BPE model: set it to 0, or give another model")
    return SAMPLERS[kind](processor, alpha)
