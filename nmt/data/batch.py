"""Batches: what one holds, how sentences are grouped into batches, and in which order they are trained on."""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import count, cycle, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float32, Int64
from torch import Tensor

from nmt.alignment.targets import AlignmentTargets, Attention, IntArray
from nmt.config.schema import UNITS, BatchConfig
from nmt.data.tables import SIDES, EncodedCorpus, ProgressLog, Ragged, lines_of
from nmt.data.workers import prefetch
from nmt.errors import UserError
from nmt.text.tokenizer import BOS, EOS, PAD, Tokenizers

Int64Array = npt.NDArray[np.int64]

BLOCKS = 100  # in a window
IF_ENDED = "free some, and start the same command again to go on; a new run may have a lower batch.window"

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
        source_lengths, target_lengths = self.source_lengths[rows], self.target_mask[rows].sum(dim=1)
        source, target = int(source_lengths.max()), int(target_lengths.max())
        return Batch(
            source=self.source[rows, :source],
            source_mask=self.source_mask[rows, :source],
            source_lengths=source_lengths,
            target_in=self.target_in[rows, :target],
            target_out=self.target_out[rows, :target],
            target_mask=self.target_mask[rows, :target],
            rows=self.rows[rows],
            num_source_tokens=int(source_lengths.sum()),
            num_target_tokens=int(target_lengths.sum()),
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
    alignment_weights = None
    if alignment is not None:
        alignment_weights = torch.zeros(*target_out.shape, source.shape[1])
        for matrix, row in zip(alignment, alignment_weights, strict=True):
            row[: matrix.shape[0], : matrix.shape[1]] = torch.from_numpy(matrix)
    return Batch(
        source=source,
        source_mask=source_mask,
        source_lengths=source_lengths,
        target_in=shift_right(target_out, target_mask),
        target_out=target_out,
        target_mask=target_mask,
        rows=np.asarray(rows),
        num_source_tokens=int(source_lengths.sum()),
        num_target_tokens=int(target_lengths.sum()),
        alignment=alignment_weights,
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


def shift_right(
    target_out: Int64[Tensor, "batch length"], mask: Bool[Tensor, "batch length"]
) -> Int64[Tensor, "batch length"]:
    """Return `target_in` of a batch: bos, then `target_out` without its last token."""
    target_in = torch.full_like(target_out, BOS)
    target_in[:, 1:] = target_out[:, :-1]
    return target_in.masked_fill_(~mask, PAD)


def plan_batches(
    source_lengths: IntArray,
    target_lengths: IntArray,
    *,
    unit: str,
    size: int,
    seed: int,
    epoch: int,
    window: int = 0,
    world_size: int = 1,
) -> list[IntArray]:
    """Group sentences of similar length on both sides; return the batches, as indices, in the order of an epoch.

    A function of the lengths (without eos) and of (seed, epoch, window) alone. With the unit "tokens" a batch holds at
    most `size` target positions, including eos and padding, and a longer sentence is a batch of its own; with
    "sentences" it holds `size` sentences, except for one batch that may hold fewer.

    Batches `i * world_size` to `(i + 1) * world_size - 1`, which that many processes train on at a time, are neighbors
    in length. To fill the last such group, up to `world_size - 1` batches, chosen anew in each epoch, occur twice.
    """
    generator = np.random.default_rng((seed, epoch, window))
    # The noise makes other batches in every epoch. It is on the source only: target padding costs more, as it goes
    # through the output layer.
    noisy = source_lengths + generator.uniform(-1.0, 1.0, len(source_lengths))
    batches = cut_batches(sort_by_length(noisy, target_lengths), target_lengths, unit=unit, size=size)
    num_groups = math.ceil(len(batches) / world_size)
    order = generator.permutation(num_groups)
    missing = num_groups * world_size - len(batches)
    end = world_size * generator.integers(1, max(2, num_groups))  # the batches before it fill the gap
    filled = batches[:end] + batches[end - missing :] if num_groups > 1 else list(islice(cycle(batches), world_size))
    return [batch for group in order for batch in filled[group * world_size : (group + 1) * world_size]]


def sort_by_length(source_lengths: npt.NDArray[np.number], target_lengths: IntArray) -> IntArray:
    """Return the order by target length, then by source length, ascending and descending in turn.

    So neighbors are similar in both, also where the target length changes.
    """
    return np.lexsort((np.where(target_lengths % 2 == 0, source_lengths, -source_lengths), target_lengths))


def cut_batches(order: IntArray, lengths: IntArray, *, unit: str, size: int) -> list[IntArray]:
    """Cut indices that are sorted by `lengths`, up or down, into batches; see `plan_batches` for `unit` and `size`."""
    assert unit in UNITS, unit
    if unit == "sentences":
        return [order[start : start + size] for start in range(0, len(order), size)]
    widths = lengths[order].astype(np.int64) + 1
    batches = []
    start = 0
    while start < len(order):
        candidates = widths[start : start + max(1, size // int(widths[start]))]
        costs = np.maximum.accumulate(candidates) * np.arange(1, len(candidates) + 1)  # of the first n of them
        count = max(1, int(np.searchsorted(costs, size, side="right")))
        batches.append(order[start : start + count])
        start += count
    return batches


@dataclass(frozen=True)
class BatchWindow:
    """The batches of one window of an epoch. A batch holds indices into `sides`; `rows` maps them to corpus rows."""

    sides: tuple[Ragged, Ragged]
    batches: list[IntArray]
    rows: IntArray | None  # None: indices are those of the corpus

    def batch(self, index: int, alignment_targets: AlignmentTargets | None) -> Batch:
        """Return a batch, with `Batch.alignment` where attention is guided."""
        numbers = self.batches[index]
        sources, targets = ([side[number] for number in numbers.tolist()] for side in self.sides)
        rows = numbers if self.rows is None else self.rows[numbers]
        alignment = None if alignment_targets is None else alignment_targets(rows, sources, targets)
        return collate(sources, targets, rows, alignment)


@dataclass(frozen=True)
class BatchWindows:
    """The windows of all epochs, by (epoch, number): each a function of that and of the seed alone."""

    encoded: EncodedCorpus
    rows: IntArray  # those that are trained on
    tokenizers: Tokenizers
    config: BatchConfig
    seed: int
    sampling: float
    world_size: int
    for_gpu: bool = False

    @property
    def count(self) -> int:
        """Their number in an epoch."""
        return math.ceil(len(self.rows) / self.config.window)

    def plan(self, place: tuple[int, int]) -> BatchWindow:
        """Return the window at (epoch, number)."""
        rows = numbers = self._rows(*place)
        sides = (self.encoded.source, self.encoded.target)
        if self.sampling:
            sides, numbers = self._segmented(rows, place), np.arange(len(rows))
        plan = plan_batches(
            *(side.offsets[numbers + 1] - side.offsets[numbers] for side in sides),
            unit=self.config.unit,
            size=self.config.size,
            seed=self.seed,
            epoch=place[0],
            window=place[1],
            world_size=self.world_size,
        )
        return BatchWindow(sides, [numbers[each] for each in plan], rows if self.sampling else None)

    def from_place(self, place: tuple[int, int]) -> Iterator[BatchWindow]:
        """Yield the window at a place (see `plan`), and those after it, without end."""
        places = ((epoch, window) for epoch in count(place[0]) for window in range(self.count))
        return map(self.plan, islice(places, place[1], None))

    def prefetched(self, place: tuple[int, int]) -> Iterator[BatchWindow]:
        """Return `from_place(place)`; where sampling takes long, another process makes the windows, one ahead.

        That is so where there are several, or for a GPU, which would wait for the only one at each epoch.
        """
        if self.sampling and (self.count > 1 or self.for_gpu):
            return prefetch(self.from_place, place, what="the process that samples subwords", advice=IF_ENDED)
        return self.from_place(place)

    def _segmented(self, rows: IntArray, place: tuple[int, int]) -> tuple[Ragged, Ragged]:
        """Return the sides of some pairs as they are segmented in this epoch."""
        # A seed for each side, so that a resumed stream draws the same.
        seeds = np.random.SeedSequence((self.seed, *place)).generate_state(2)
        text = self.encoded.corpus.select(rows)
        source, target = (
            Ragged.of(getattr(self.tokenizers, side).sample(lines_of(text, side), self.sampling, int(seed)))
            for side, seed in zip(SIDES, seeds, strict=True)
        )
        return source, target

    def _rows(self, epoch: int, number: int) -> IntArray:
        """Return the pairs of a window, in the order of the corpus: blocks of neighbors, drawn anew in each epoch."""
        if self.count == 1:
            return self.rows
        size = len(self.rows)
        blocks = np.array_split(self.rows, min(size, math.ceil(size * BLOCKS / self.config.window)))
        order = np.random.default_rng((self.seed, epoch, self.count)).permutation(len(blocks))
        return np.concatenate([blocks[block] for block in np.sort(np.array_split(order, self.count)[number])])


def trained_rows(source: Int64Array, target: Int64Array, limit: int) -> Int64Array:
    """Return the rows of pairs to train on, given the lengths of their sides: from 1 to `limit` subwords; raise
    UserError if there are none.
    """
    longest, is_empty = np.maximum(source, target), np.minimum(source, target) == 0
    rows = np.flatnonzero((longest <= limit) & ~is_empty)
    if is_empty.any():  # of characters that normalization drops, such as spaces of no width
        logger.info("left out %d training pairs with a side without subwords", is_empty.sum())
    if len(rows) == 0:
        raise UserError(
            f"no training pair is left: every one of {len(longest)} has a side of more than "
            f"batch.max_length={limit} subwords, or of none; raise it or check the corpus"
        )
    if (longest > limit).any():
        logger.info("left out %d training pairs longer than %d subwords", (longest > limit).sum(), limit)
    return rows


@dataclass(eq=False)
class TrainLoader:
    """An endless stream of training batches whose order is a function of (seed, epoch) alone.

    Sentences are segmented, and batches planned (`plan_batches`), in windows of about `config.window` pairs, made of
    blocks of neighboring pairs that are drawn anew in each epoch. A small corpus is one window.

    `iter(loader)` yields the rest of the current epoch and then advances to the next; `position` counts the batches of
    the window that were yielded. Rank r takes the batches r, r + `world_size`, ...: all ranks take equally many, and at
    any time batches of similar length.

    With `sampling` above 0 every sentence is segmented anew in each epoch (`Tokenizer.sample` with this alpha), before
    the batches are planned: sorted by other lengths than their own, a third of them would be padding.
    `alignment_targets` makes `Batch.alignment`. Raises UserError as `trained_rows`.
    """

    encoded: EncodedCorpus
    tokenizers: Tokenizers
    config: BatchConfig
    _: KW_ONLY
    seed: int
    sampling: float = 0.0
    alignment_targets: AlignmentTargets | None = None
    rank: int = 0
    world_size: int = 1
    pin_memory: bool = False
    epoch: int = field(default=0, init=False)
    window: int = field(default=0, init=False)
    position: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        assert 0 <= self.rank < self.world_size
        self._rows = trained_rows(self.encoded.source.lengths, self.encoded.target.lengths, self.config.max_length)
        self._begin()

    def _begin(self) -> None:
        self._windows = BatchWindows(
            self.encoded,
            self._rows,
            self.tokenizers,
            self.config,
            self.seed,
            self.sampling,
            self.world_size,
            for_gpu=self.pin_memory,
        )
        self._planned: BatchWindow | None = None
        self._windows_ahead: Iterator[BatchWindow] = iter(())

    def __len__(self) -> int:
        """Return the number of batches of this rank in the current window."""
        return len(self._plan().batches) // self.world_size

    @property
    def epochs(self) -> float:
        """How often the corpus was read: epochs, and the part of the current one, in which windows count alike."""
        return self.epoch + (self.window + self.position / len(self)) / self._windows.count

    def __iter__(self) -> Iterator[Batch]:
        while True:
            planned = self._plan()
            for index in range(self.rank, len(planned.batches), self.world_size)[self.position :]:
                batch = planned.batch(index, self.alignment_targets)
                self.position += 1
                yield batch.pin_memory() if self.pin_memory else batch
            self.window, self.position, self._planned = self.window + 1, 0, None
            if self.window == self._windows.count:
                self.epoch, self.window = self.epoch + 1, 0
                return

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the stream, and what the order of batches depends on."""
        place = {"epoch": self.epoch, "window": self.window, "position": self.position}
        return {**place, "seed": self.seed, "order": self._order()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the batch that would have come next, and with the seed of the state; raise UserError if the
        corpus, the batch settings or the number of processes changed.
        """
        order = self._order()
        saved = order | {"batch.window": None} | state["order"]  # earlier versions have saved less
        for name, value in order.items():
            if value != saved[name]:
                was, now = ("larger than the corpus" if each is None else each for each in (saved[name], value))
                raise UserError(
                    f"cannot continue the training data where the checkpoint left it: {name} was {was} and is now "
                    f"{now}; restore it, or start in a new run_dir"
                )
        self.epoch, self.position, self.seed = state["epoch"], state["position"], state["seed"]
        self.window = state.get("window", 0)  # runs of earlier versions have one
        self._begin()

    def _order(self) -> dict[str, Any]:
        lengths = self.encoded.source.lengths + self.encoded.target.lengths
        return {
            "the number of training pairs": len(self._rows),
            "the number of training tokens": int(lengths[self._rows].sum()),
            "the checksum of the training text": self.encoded.checksum,
            "batch.unit": self.config.unit,
            "batch.size": self.config.size,
            "the number of processes": self.world_size,
            "batch.window": None if self._windows.count == 1 else self.config.window,
            "tokenizer.sampling": self.sampling,
        }

    def _plan(self) -> BatchWindow:
        """Return the current window."""
        if self._planned is None:
            with ProgressLog("planning batches"):
                self._planned = next(self._windows_ahead, None)
                if self._planned is None:  # there is no iterator yet, or its process was ended
                    self._windows_ahead = self._windows.prefetched((self.epoch, self.window))
                    self._planned = next(self._windows_ahead)
        return self._planned


def fixed_batches(source: Ragged, target: Ragged, size: int) -> Iterator[Batch]:
    """Yield every pair once, sorted by length, in batches of at most `size` target positions (see `plan_batches`)."""
    order = sort_by_length(source.lengths, target.lengths)
    for rows in cut_batches(order, target.lengths, unit="tokens", size=size):
        numbers = rows.tolist()
        yield collate([source[number] for number in numbers], [target[number] for number in numbers], rows)
