"""Batches of sentences to translate: of similar length, small enough for memory, and halved where that runs out."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from nmt.data.batch import Int64Array, cut_batches
from nmt.errors import UserError, is_out_of_memory

Result = TypeVar("Result")


def lengths_of(sentences: Sequence[Sequence[int]]) -> Int64Array:
    """Return the number of ids of each sentence."""
    return np.array([len(sentence) for sentence in sentences], dtype=np.int64)


def plan_sentences(lengths: Int64Array, costs: Int64Array, *, unit: str, size: int, memory: int) -> list[list[int]]:
    """Return the rows of each batch: sentences of similar length, no empty ones.

    The longest come first, so that threads that take one after the other end at about the same time.

    A batch holds at most `size` (see `plan_batches` for `unit`) and takes at most `memory` bytes, or is of one
    sentence. `costs` are bytes per sentence; in a padded batch, every sentence costs as much as the most expensive one.
    """
    order = (-lengths).argsort(kind="stable")
    order = order[lengths[order] > 0]
    batches = []
    for batch in cut_batches(order, lengths, unit=unit, size=size):
        most = max(1, memory // int(costs[batch].max()))
        batches += [batch[start : start + most].tolist() for start in range(0, len(batch), most)]
    return batches


def halve_on_memory_error(work: Callable[[list[int]], list[Result]], rows: list[int]) -> list[Result]:
    """Return `work(rows)`, halving the rows when memory runs out; raise UserError if it runs out for a single row."""
    try:
        return work(rows)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    # The error is gone here, and with it what it held.
    if len(rows) == 1:
        raise UserError("memory does not suffice for one sentence: lower search.beam_size, or shorten its line")
    half = len(rows) // 2
    return [*halve_on_memory_error(work, rows[:half]), *halve_on_memory_error(work, rows[half:])]
