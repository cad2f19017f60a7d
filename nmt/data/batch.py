"""A batch of sentence pairs (shift, masks, token counts), and how sentences are grouped into batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float32, Int64
from torch import Tensor

from nmt.config.schema import UNITS
from nmt.text.tokenizer import BOS, EOS, PAD

IntArray = npt.NDArray[np.integer]
Attention = Float32[np.ndarray, "_ _"]  # of one pair: target pieces by source pieces


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

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        changed: dict[str, Any] = {name: change(tensors[name]) for name in tensors if name != "source_lengths"}
        return replace(self, **changed)


def collate(
    sources: Sequence[IntArray],
    targets: Sequence[IntArray],
    rows: IntArray,
    alignment: Sequence[Attention] | None = None,
) -> Batch:
    """Make a batch of pairs.

    Args:
        sources: the ids of each source, without bos and eos.
        targets: the ids of each target, likewise.
        rows: the indices of the pairs in the corpus.
        alignment: the target of guided alignment for each pair, if there is one.
    """
    assert len(sources) == len(targets) == len(rows)
    source, source_mask, source_lengths = pad_source(sources)
    target_out, target_mask, target_lengths = _pad(targets)
    target_in = np.full_like(target_out, BOS)
    target_in[:, 1:] = target_out[:, :-1]
    target_in[~target_mask] = PAD
    return Batch(
        source=source,
        source_mask=source_mask,
        source_lengths=source_lengths,
        target_in=torch.from_numpy(target_in),
        target_out=torch.from_numpy(target_out),
        target_mask=torch.from_numpy(target_mask),
        rows=np.asarray(rows),
        num_source_tokens=int(source_lengths.sum()),
        num_target_tokens=int(target_lengths.sum()),
        alignment=None if alignment is None else _pad_attention(alignment, target_out.shape[1], source.shape[1]),
    )


def pad_source(
    sources: Sequence[IntArray],
) -> tuple[Int64[Tensor, "batch source"], Bool[Tensor, "batch source"], Int64[Tensor, " batch"]]:
    """Return encoded sources with eos appended, padded on the right; their mask; and their lengths including eos."""
    padded, mask, lengths = _pad(sources)
    return torch.from_numpy(padded), torch.from_numpy(mask), torch.from_numpy(lengths)


def _pad(sequences: Sequence[IntArray]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    assert len(sequences) > 0, "a batch holds at least one sentence"
    lengths = np.fromiter((len(sequence) for sequence in sequences), np.int64, len(sequences))
    positions = np.arange(lengths.max() + 1)
    padded = np.full((len(sequences), len(positions)), PAD, np.int64)
    # A boolean index visits its true cells row by row, which is the order of the concatenated sentences.
    padded[positions < lengths[:, None]] = np.concatenate(sequences)
    padded[np.arange(len(sequences)), lengths] = EOS
    return padded, positions <= lengths[:, None], lengths + 1


def _pad_attention(
    attention: Sequence[Attention], num_targets: int, num_sources: int
) -> Float32[Tensor, "batch target source"]:
    padded = np.zeros((len(attention), num_targets, num_sources), np.float32)
    for matrix, row in zip(attention, padded, strict=True):
        row[: matrix.shape[0], : matrix.shape[1]] = matrix
    return torch.from_numpy(padded)


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
