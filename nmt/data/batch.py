"""Batches: what one holds, how sentences are grouped into batches, and in which order they are trained on."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float32, Int64
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from nmt.alignment.targets import AlignmentTargets
from nmt.config.schema import UNITS, BatchConfig
from nmt.data.tables import SIDES, EncodedCorpus, Ragged
from nmt.errors import UserError
from nmt.text.tokenizer import BOS, EOS, PAD, Tokenizers

IntArray = npt.NDArray[np.integer]
Int64Array = npt.NDArray[np.int64]
Attention = Float32[np.ndarray, "_ _"]  # of one pair: target pieces by source pieces

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Sentence pairs side by side, padded on the right with PAD; masks are True on real tokens.

    For target pieces `y1 ... yn` the row of `target_in`, the decoder's input, is `bos y1 ... yn`, and the row of
    `target_out`, its prediction, is `y1 ... yn eos`. Sources end with eos. `source_lengths` includes eos and stays on
    the CPU, as packing requires; the token counts, including eos, are plain integers, which the training loop reads
    without waiting for the device. `alignment` is the target of guided alignment, if there is one: the attention
    weights wanted at each position of `target_out`; rows of zeros are ignored. `rows` are indices in the corpus.
    """

    source: Int64[Tensor, "batch source"]
    source_mask: Bool[Tensor, "batch source"]
    source_lengths: Int64[Tensor, " batch"]
    target_in: Int64[Tensor, "batch target"]
    target_out: Int64[Tensor, "batch target"]
    target_mask: Bool[Tensor, "batch target"]
    rows: IntArray
    num_source_tokens: int
    num_target_tokens: int
    alignment: Float32[Tensor, "batch target source"] | None = None

    def __len__(self) -> int:
        return len(self.source)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "Batch":
        """Return the batch with every tensor but `source_lengths` on `device`."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Batch":
        """Return the batch in page-locked memory, from which copies to a GPU need not block."""
        return self._map(torch.Tensor.pin_memory)

    def twice(self) -> "Batch":
        """Return the batch with all pairs once more, behind the others."""
        return self._map(
            lambda tensor: torch.cat((tensor, tensor)),
            source_lengths=torch.cat((self.source_lengths, self.source_lengths)),
            rows=np.concatenate((self.rows, self.rows)),
            num_source_tokens=2 * self.num_source_tokens,
            num_target_tokens=2 * self.num_target_tokens,
        )

    def part(self, rows: slice) -> "Batch":
        """Return some of the pairs, padded no further than they need."""
        source_lengths = self.source_lengths[rows]
        source, target = int(source_lengths.max()), int(self.target_mask[rows].sum(dim=1).max())
        widths = {"source": source, "source_mask": source}
        cut: dict[str, Any] = {
            name: getattr(self, name)[rows, : widths.get(name, target)]
            for name in ("source", "source_mask", "target_in", "target_out", "target_mask")
        }
        return replace(
            self,
            **cut,
            source_lengths=source_lengths,
            rows=self.rows[rows],
            num_source_tokens=int(source_lengths.sum()),
            num_target_tokens=int(cut["target_mask"].sum()),
            alignment=None if self.alignment is None else self.alignment[rows, :target, :source],
        )

    def _map(self, change: Callable[[Tensor], Tensor], **others: Any) -> "Batch":
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        changed: dict[str, Any] = {name: change(tensors[name]) for name in tensors if name != "source_lengths"}
        return replace(self, **changed, **others)


def collate(
    sources: Sequence[IntArray],
    targets: Sequence[IntArray],
    rows: IntArray,
    alignment: Sequence[Attention] | None = None,
) -> Batch:
    """Make a batch of pairs from the ids of their sides, without bos and eos; see `Batch` for the others."""
    assert len(sources) == len(targets) == len(rows)
    source, source_mask, source_lengths = pad(sources)
    target_out, target_mask, target_lengths = pad(targets)
    target_in = torch.full_like(target_out, BOS)
    target_in[:, 1:] = target_out[:, :-1]
    target_in[~target_mask] = PAD
    wanted = None
    if alignment is not None:
        wanted = torch.zeros(*target_out.shape, source.shape[1])
        for matrix, row in zip(alignment, wanted, strict=True):
            row[: matrix.shape[0], : matrix.shape[1]] = torch.from_numpy(matrix)
    return Batch(
        source=source,
        source_mask=source_mask,
        source_lengths=source_lengths,
        target_in=target_in,
        target_out=target_out,
        target_mask=target_mask,
        rows=np.asarray(rows),
        num_source_tokens=int(source_lengths.sum()),
        num_target_tokens=int(target_lengths.sum()),
        alignment=wanted,
    )


def pad(
    sequences: Sequence[IntArray],
) -> tuple[Int64[Tensor, "batch length"], Bool[Tensor, "batch length"], Int64[Tensor, " batch"]]:
    """Return sequences of ids with eos appended, padded on the right; their mask; and their lengths including eos."""
    assert len(sequences) > 0, "a batch holds at least one sentence"
    lengths = np.fromiter((len(sequence) for sequence in sequences), np.int64, len(sequences))
    positions = np.arange(lengths.max() + 1)
    padded = np.full((len(sequences), len(positions)), PAD, np.int64)
    # A boolean index visits its true cells row by row, which is the order of the concatenated sentences.
    padded[positions < lengths[:, None]] = np.concatenate(sequences)
    padded[np.arange(len(sequences)), lengths] = EOS
    mask = positions <= lengths[:, None]
    return torch.from_numpy(padded), torch.from_numpy(mask), torch.from_numpy(lengths + 1)


def plan_batches(
    source_lengths: IntArray,
    target_lengths: IntArray,
    *,
    unit: str,
    size: int,
    seed: int,
    epoch: int,
    world_size: int = 1,
) -> list[IntArray]:
    """Group sentences of similar length on both sides; return the batches, as indices, in the order of an epoch.

    A function of the lengths (without eos) and of (seed, epoch) alone. With the unit "tokens" a batch holds at most
    `size` target positions, including eos and padding, and a longer sentence is a batch of its own; with "sentences" it
    holds `size` sentences, except for one batch that may hold fewer.

    Batches `i * world_size` to `(i + 1) * world_size - 1`, which that many processes train on at a time, are neighbors
    in length. To fill the last such group, up to `world_size - 1` batches, chosen anew in each epoch, occur twice.
    """
    generator = np.random.default_rng((seed, epoch))
    # The noise makes other batches in every epoch. It is on the source only: target padding costs more, as it goes
    # through the output layer.
    noisy = source_lengths + generator.uniform(-1.0, 1.0, len(source_lengths))
    batches = cut_batches(sort_by_length(noisy, target_lengths), target_lengths, unit=unit, size=size)
    num_groups = -(-len(batches) // world_size)
    order = generator.permutation(num_groups)
    starts = np.arange(num_groups) * world_size
    starts[generator.integers(1, max(2, num_groups)) :] -= num_groups * world_size - len(batches)
    return [batches[(start + rank) % len(batches)] for start in starts[order] for rank in range(world_size)]


def sort_by_length(source_lengths: npt.NDArray[np.number], target_lengths: IntArray) -> IntArray:
    """Return the order by target length, then by source length, ascending and descending in turn.

    So neighbors are similar in both, also where the target length changes.
    """
    return np.lexsort((np.where(target_lengths % 2 == 0, source_lengths, -source_lengths), target_lengths))


def cut_batches(order: IntArray, lengths: IntArray, *, unit: str, size: int) -> list[IntArray]:
    """Cut indices that are sorted by `lengths` into batches; see `plan_batches` for `unit` and `size`."""
    assert unit in UNITS, unit
    if unit == "sentences":
        return [order[start : start + size] for start in range(0, len(order), size)]
    widths = lengths[order].astype(np.int64) + 1
    batches = []
    start = 0
    while start < len(order):
        # Widths ascend: no more sentences than this fit, and the cost of the first n of them ascends with n.
        candidates = widths[start : start + max(1, size // int(widths[start]))]
        costs = candidates * np.arange(1, len(candidates) + 1)
        count = max(1, int(np.searchsorted(costs, size, side="right")))
        batches.append(order[start : start + count])
        start += count
    return batches


def within_memory(batches: Iterable[IntArray], costs: Int64Array, memory: int) -> Iterator[IntArray]:
    """Cut batches so that none takes more than `memory` bytes, or has one sentence.

    Args:
        batches: indices of sentences.
        costs: bytes that each sentence takes; in a batch, each takes as many as the one that takes most.
        memory: the limit.
    """
    for batch in batches:
        size = max(1, memory // int(costs[batch].max()))
        yield from (batch[start : start + size] for start in range(0, len(batch), size))


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
        longest, limit = np.maximum(self.encoded.source.lengths, self.encoded.target.lengths), self.config.max_length
        self._rows = np.flatnonzero(longest <= limit)
        if len(self._rows) == 0:
            raise UserError(
                f"no training pair is left: every one of {len(longest)} has a side of more than "
                f"batch.max_length={limit} subwords; raise it or check the corpus"
            )
        if len(self._rows) < len(longest):
            logger.info("left out %d training pairs longer than %d subwords", len(longest) - len(self._rows), limit)
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
            before = state["order"].get(name)
            if value != before:
                raise UserError(
                    f"cannot continue the training data where the checkpoint left it: {name} was {before} and is now "
                    f"{value}; restore it, or start in a new run_dir"
                )
        self.epoch, self.position, self.seed = state["epoch"], state["position"], state["seed"]
        self._planned = None

    def _order(self) -> dict[str, Any]:
        lengths = self.encoded.source.lengths + self.encoded.target.lengths
        return {
            "the number of training pairs": len(self._rows),
            "the number of training tokens": int(lengths[self._rows].sum()),
            "batch.unit": self.config.unit,
            "batch.size": self.config.size,
            "the number of processes": self.world_size,
        }

    def _plan(self) -> "_Epoch":
        if self._planned is None or self._planned.epoch != self.epoch:
            encoded = self._segmented()
            lengths = (encoded.source.lengths[self._rows], encoded.target.lengths[self._rows])
            unit, size, world_size = self.config.unit, self.config.size, self.world_size
            plan = plan_batches(*lengths, unit=unit, size=size, seed=self.seed, epoch=self.epoch, world_size=world_size)
            self._planned = _Epoch(encoded, [self._rows[indices] for indices in plan], self.guide, self.epoch)
        return self._planned

    def _segmented(self) -> EncodedCorpus:
        """Return the corpus as it is segmented in this epoch."""
        if self.sampling == 0:
            return self.encoded
        # A seed for each epoch and side, so that a resumed stream draws the same.
        seeds = np.random.SeedSequence((self.seed, self.epoch)).generate_state(2)
        sides = {}
        for side, seed in zip(SIDES, seeds, strict=True):
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
        sources, targets = self.encoded.pairs(rows)
        alignment = None if self.guide is None else self.guide(rows, sources, targets)
        return collate(sources, targets, rows, alignment)


def fixed_batches(encoded: EncodedCorpus, size: int) -> Iterator[Batch]:
    """Yield every pair once, sorted by length, in batches of at most `size` target positions (see `plan_batches`)."""
    order = sort_by_length(encoded.source.lengths, encoded.target.lengths)
    for rows in cut_batches(order, encoded.target.lengths, unit="tokens", size=size):
        yield collate(*encoded.pairs(rows), rows)
