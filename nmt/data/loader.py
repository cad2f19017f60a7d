"""Streams of batches: shuffled and resumable for training, sorted and complete for validation."""

import logging
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from nmt.alignment.targets import AlignmentTargets
from nmt.config.schema import BatchConfig
from nmt.data.batch import Batch, IntArray, collate, cut_batches, plan_batches, sort_by_length
from nmt.data.encoded import EncodedCorpus, Ragged
from nmt.errors import UserError
from nmt.text.tokenizer import Tokenizers

Pairs = tuple[list[IntArray], list[IntArray]]  # ids of sources and of targets

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class TrainLoader:
    """An endless stream of training batches whose order is a function of (seed, epoch) alone.

    `iter(loader)` yields the rest of the current epoch and then advances to the next; `position` counts the batches of
    the epoch that were yielded. Rank r takes the batches r, r + `world_size`, ...: all ranks take equally many, and at
    any time batches of similar length (`plan_batches`).

    Args:
        sampling: above 0, segment every sentence anew in each epoch (`Tokenizer.sample` with this alpha), before
            the batches are planned: sorted by other lengths than their own, a third of them would be padding.
        guide: makes `Batch.alignment`, where attention is guided.
        num_workers: processes that make batches ahead of time; 0 makes them when asked.

    Raises:
        UserError: when no pair is left after leaving out those longer than `config.max_length` subwords.
    """

    encoded: EncodedCorpus
    tokenizers: Tokenizers
    config: BatchConfig
    _: KW_ONLY
    seed: int
    sampling: float = 0.0
    guide: AlignmentTargets | None = None
    rank: int = 0
    world_size: int = 1
    pin_memory: bool = False
    num_workers: int = 0
    epoch: int = field(default=0, init=False)
    position: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        assert 0 <= self.rank < self.world_size
        self._rows = _rows_within(self.encoded, self.config.max_length)
        self._planned: _Epoch | None = None

    def __len__(self) -> int:
        """Return the number of batches of this rank in the current epoch."""
        return len(self._plan().batches) // self.world_size

    def __iter__(self) -> Iterator[Batch]:
        mine = range(self.rank, len(self._plan().batches), self.world_size)
        loader = DataLoader(
            self._plan(),
            sampler=mine[self.position :],
            batch_size=None,
            num_workers=self.num_workers,
            pin_memory=self.pin_memory,
            # By default it draws from torch's global generator, and dropout would differ after a resume.
            generator=torch.Generator(),
        )
        for batch in loader:
            self.position += 1
            yield batch
        self.epoch += 1
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the stream, and what the order of batches depends on."""
        return {"epoch": self.epoch, "position": self.position, "seed": self.seed, "order": self._order()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the batch that would have come next; the seed becomes that of the state.

        Raises:
            UserError: when the corpus, the batch settings or the number of processes changed.
        """
        for name, value in self._order().items():
            if value != state["order"].get(name):
                raise UserError(
                    f"cannot continue the training data where the checkpoint left it: {name} was "
                    f"{state['order'].get(name)} and is now {value}; restore it, or start in a new run_dir"
                )
        self.epoch, self.position, self.seed = state["epoch"], state["position"], state["seed"]
        self._planned = None

    def _order(self) -> dict[str, Any]:
        return {
            "the number of training pairs": len(self._rows),
            "the number of training tokens": int(self._lengths("source").sum() + self._lengths("target").sum()),
            "batch.unit": self.config.unit,
            "batch.size": self.config.size,
            "the number of processes": self.world_size,
        }

    def _lengths(self, side: str) -> IntArray:
        lengths: IntArray = getattr(self.encoded, side).lengths[self._rows]
        return lengths

    def _plan(self) -> "_Epoch":
        if self._planned is None or self._planned.epoch != self.epoch:
            encoded = self._segmented()
            lengths = (encoded.source.lengths[self._rows], encoded.target.lengths[self._rows])
            unit, size, world_size = self.config.unit, self.config.size, self.world_size
            plan = plan_batches(*lengths, unit=unit, size=size, seed=self.seed, epoch=self.epoch, world_size=world_size)
            batches = [self._rows[indices] for indices in plan]
            self._planned = _Epoch(encoded, batches, guide=self.guide, epoch=self.epoch)
        return self._planned

    def _segmented(self) -> EncodedCorpus:
        """Return the corpus as it is segmented in this epoch."""
        if self.sampling == 0:
            return self.encoded
        # A seed for each epoch and side, so that a resumed stream draws the same.
        seeds = np.random.SeedSequence((self.seed, self.epoch)).generate_state(2)
        sides = {}
        for side, seed in zip(("source", "target"), seeds, strict=True):
            tokenizer = getattr(self.tokenizers, side)
            sides[side] = Ragged.of(tokenizer.sample(list(self.encoded.corpus[side]), self.sampling, int(seed)))
        return replace(self.encoded, **sides)


@dataclass(frozen=True)
class _Epoch(Dataset[Batch]):
    """The batches of one epoch by number."""

    encoded: EncodedCorpus
    batches: list[IntArray]
    guide: AlignmentTargets | None
    epoch: int

    def __getitem__(self, index: int) -> Batch:
        rows = self.batches[index]
        sources, targets = _encoded_pairs(self.encoded, rows)
        alignment = None if self.guide is None else self.guide(rows, sources, targets)
        return collate(sources, targets, rows, alignment)


def fixed_batches(encoded: EncodedCorpus, size: int) -> Iterator[Batch]:
    """Yield every pair once, sorted by length, in batches of at most `size` target positions (see `plan_batches`)."""
    order = sort_by_length(encoded.source.lengths, encoded.target.lengths)
    for rows in cut_batches(order, encoded.target.lengths, unit="tokens", size=size):
        yield collate(*_encoded_pairs(encoded, rows), rows)


def _encoded_pairs(encoded: EncodedCorpus, rows: IntArray) -> Pairs:
    numbers = rows.tolist()
    return [encoded.source[row] for row in numbers], [encoded.target[row] for row in numbers]


def _rows_within(encoded: EncodedCorpus, max_length: int) -> IntArray:
    longest = np.maximum(encoded.source.lengths, encoded.target.lengths)
    rows = np.flatnonzero(longest <= max_length)
    if len(rows) == 0:
        raise UserError(
            f"no training pair is left: every one of {len(longest)} has a side of more than "
            f"batch.max_length={max_length} subwords; raise it or check the corpus"
        )
    if len(rows) < len(longest):
        logger.info("left out %d training pairs longer than %d subwords", len(longest) - len(rows), max_length)
    return rows
