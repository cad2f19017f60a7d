"""Batches: the one place that knows the shift, the masks and the token counts, and how sentences are grouped."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float32, Int64
from torch import Tensor

from nmt.config.schema import UNITS
from nmt.text.tokenizer import BOS, EOS, PAD

IntArray = npt.NDArray[np.integer]
Attention = Float32[np.ndarray, "_ _"]  # of a pair: target pieces by source pieces


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Sentence pairs side by side, padded on the right with PAD; masks are True on real tokens.

    For target pieces `y1 ... yn` the row of `target_in` is `bos y1 ... yn`, what the decoder reads, and the
    row of `target_out` is `y1 ... yn eos`, what it must say. Sources end with eos. `source_lengths` counts eos
    and stays on the CPU, where packing wants it; the token counts (eos in) are plain integers, so that the
    training loop never waits for a device to read them. `alignment`, there only where attention is taught, is the
    attention that each position of `target_out` ought to pay; a row of zeros says nothing.
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
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "source_lengths"}
        changed: dict[str, Any] = {name: change(value) for name, value in values.items() if isinstance(value, Tensor)}
        return replace(self, **changed)


def collate(
    sources: Sequence[IntArray],
    targets: Sequence[IntArray],
    rows: IntArray,
    alignment: Sequence[Attention] | None = None,
) -> Batch:
    """Make a batch of encoded pairs (ids without bos and eos).

    Args:
        sources: the ids of each source.
        targets: the ids of each target.
        rows: their indices in the corpus.
        alignment: the attention to teach between the pieces of each pair, if any is to be taught.
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
    """Return encoded sources with eos appended, padded on the right; their mask; and their lengths, eos in."""
    padded, mask, lengths = _pad(sources)
    return torch.from_numpy(padded), torch.from_numpy(mask), torch.from_numpy(lengths)


def _pad(sequences: Sequence[IntArray]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    assert len(sequences) > 0, "a batch holds at least one sentence"
    lengths = np.fromiter((len(sequence) for sequence in sequences), np.int64, len(sequences))
    positions = np.arange(lengths.max() + 1)
    padded = np.full((len(sequences), len(positions)), PAD, np.int64)
    # A boolean index visits its true cells row by row: just the order of the concatenated sentences.
    padded[positions < lengths[:, None]] = np.concatenate(sequences)
    padded[np.arange(len(sequences)), lengths] = EOS
    return padded, positions <= lengths[:, None], lengths + 1


def _pad_attention(
    attention: Sequence[Attention], num_targets: int, num_sources: int
) -> Float32[Tensor, "batch target source"]:
    padded = np.zeros((len(attention), num_targets, num_sources), np.float32)
    for matrix, place in zip(attention, padded, strict=True):
        place[: matrix.shape[0], : matrix.shape[1]] = matrix
    return torch.from_numpy(padded)


def plan_batches(
    source_lengths: IntArray, target_lengths: IntArray, *, unit: str, size: int, seed: int, epoch: int, abreast: int = 1
) -> list[IntArray]:
    """Group sentences of like length on both sides; return the batches, as indices, in the order of an epoch.

    Depends only on the lengths (which are without eos) and on (seed, epoch). With the unit "tokens" a batch holds
    at most `size` target positions, eos and padding in, and a longer sentence is a batch by itself; with
    "sentences" it holds `size` sentences, but for one batch that may hold fewer.

    Each `abreast` batches, counted from the first, are neighbors in length. To make up whole rows of them, fewer
    than `abreast` batches, at a place that each epoch chooses anew, come twice.
    """
    generator = np.random.default_rng((seed, epoch))
    # The noise mixes the batches anew in every epoch. It is on the source only: target padding costs more, as it
    # goes through the output layer.
    noisy = source_lengths + generator.uniform(-1.0, 1.0, len(source_lengths))
    batches = cut_batches(sort_by_length(noisy, target_lengths), target_lengths, unit=unit, size=size)
    num_rows = -(-len(batches) // abreast)
    order = generator.permutation(num_rows)
    starts = np.arange(num_rows) * abreast
    starts[generator.integers(1, max(2, num_rows)) :] -= num_rows * abreast - len(batches)
    return [batches[(start + place) % len(batches)] for start in starts[order] for place in range(abreast)]


def sort_by_length(source_lengths: npt.NDArray[np.number], target_lengths: IntArray) -> IntArray:
    """Return the order by target length, then by source length: up and down in turn, so that neighbors stay alike."""
    return np.lexsort((np.where(target_lengths % 2 == 0, source_lengths, -source_lengths), target_lengths))


def cut_batches(order: IntArray, lengths: IntArray, *, unit: str, size: int) -> list[IntArray]:
    """Cut indices sorted by length, when training that of the target, into batches.

    See `plan_batches` for `unit` and `size`.
    """
    assert unit in UNITS, unit
    if unit == "sentences":
        return [order[start : start + size] for start in range(0, len(order), size)]
    widths = lengths[order].astype(np.int64) + 1
    batches = []
    start = 0
    while start < len(order):
        # Widths only grow, so no more sentences than this can fit, and the cost of each further one is sorted.
        candidates = widths[start : start + max(1, size // int(widths[start]))]
        costs = candidates * np.arange(1, len(candidates) + 1)
        count = max(1, int(np.searchsorted(costs, size, side="right")))
        batches.append(order[start : start + count])
        start += count
    return batches
