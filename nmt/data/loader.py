"""Streams of batches: shuffled and resumable for training, sorted and complete for validation."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
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


class TrainLoader:
    """An endless stream of training batches whose order is a function of (seed, epoch) alone.

    `iter(loader)` gives the rest of the current epoch and then moves on to the next epoch; `position` counts
    the batches of the epoch that were handed out. With many processes each rank takes every `world_size`-th
    batch: all take equally many, and at any time batches of like length (`plan_batches`).

    Args:
        sampling: above 0, segment every sentence anew in each epoch (`Tokenizer.sample` with this alpha), before
            the batches are planned: sorted by other lengths than their own, sentences would be a third padding.
        guide: gives every batch the attention to be taught (`Batch.alignment`), if any is.
        num_workers: processes that make batches ahead of time; 0 makes them when asked.

    Raises:
        UserError: when no pair is left after leaving out those longer than `config.max_length` subwords.
    """

    def __init__(
        self,
        encoded: EncodedCorpus,
        tokenizers: Tokenizers,
        config: BatchConfig,
        *,
        seed: int,
        sampling: float = 0.0,
        guide: AlignmentTargets | None = None,
        rank: int = 0,
        world_size: int = 1,
        pin_memory: bool = False,
        num_workers: int = 0,
    ) -> None:
        assert 0 <= rank < world_size
        self.epoch = 0
        self.position = 0
        self._seed = seed
        self._encoded = encoded
        self._tokenizers = tokenizers
        self._config = config
        self._sampling = sampling
        self._guide = guide
        self._rank = rank
        self._world_size = world_size
        self._pin_memory = pin_memory
        self._num_workers = num_workers
        self._rows = _rows_within(encoded, config.max_length)
        self._planned: _Epoch | None = None

    def __len__(self) -> int:
        """Batches of this rank in the current epoch."""
        return len(self._plan().batches) // self._world_size

    def __iter__(self) -> Iterator[Batch]:
        mine = range(self._rank, len(self._plan().batches), self._world_size)
        loader = DataLoader(
            self._plan(),
            sampler=mine[self.position :],
            batch_size=None,
            num_workers=self._num_workers,
            pin_memory=self._pin_memory,
            # Else the loader draws from torch's global generator, and dropout would differ after a resume.
            generator=torch.Generator(),
        )
        for batch in loader:
            self.position += 1
            yield batch
        self.epoch += 1
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        """Return where the stream is: the batches handed out so far, and what their order depends on."""
        return {"epoch": self.epoch, "position": self.position, "seed": self._seed, "order": self._order()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the batch that would have come next (the seed of the state is taken over).

        Raises:
            UserError: when the corpus, the batch settings or the number of processes changed.
        """
        for name, value in self._order().items():
            if value != state["order"].get(name):
                raise UserError(
                    f"cannot continue the training data where the checkpoint left it: {name} was "
                    f"{state['order'].get(name)} and is now {value}; restore it, or start in a new run_dir"
                )
        self.epoch, self.position, self._seed = state["epoch"], state["position"], state["seed"]
        self._planned = None

    def _order(self) -> dict[str, Any]:
        return {
            "the number of training pairs": len(self._rows),
            "the number of training tokens": int(self._lengths("source").sum() + self._lengths("target").sum()),
            "batch.unit": self._config.unit,
            "batch.size": self._config.size,
            "the number of processes": self._world_size,
        }

    def _lengths(self, side: str) -> IntArray:
        lengths: IntArray = getattr(self._encoded, side).lengths[self._rows]
        return lengths

    def _plan(self) -> "_Epoch":
        if self._planned is None or self._planned.epoch != self.epoch:
            encoded = self._segmented()
            plan = plan_batches(
                encoded.source.lengths[self._rows],
                encoded.target.lengths[self._rows],
                unit=self._config.unit,
                size=self._config.size,
                seed=self._seed,
                epoch=self.epoch,
                abreast=self._world_size,
            )
            batches = [self._rows[indices] for indices in plan]
            self._planned = _Epoch(encoded, batches, guide=self._guide, epoch=self.epoch)
        return self._planned

    def _segmented(self) -> EncodedCorpus:
        """Return the corpus as it is segmented in this epoch."""
        if self._sampling == 0:
            return self._encoded
        # A seed for each epoch and side, so that a stream resumed in the middle draws what it would have drawn.
        seeds = np.random.SeedSequence((self._seed, self.epoch)).generate_state(2)
        sides = {}
        for side, seed in zip(("source", "target"), seeds, strict=True):
            tokenizer = getattr(self._tokenizers, side)
            sides[side] = Ragged.of(tokenizer.sample(list(self._encoded.corpus[side]), self._sampling, int(seed)))
        return replace(self._encoded, **sides)


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
    """Yield every pair once, sorted by length, in batches of at most `size` target positions (as for training)."""
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
