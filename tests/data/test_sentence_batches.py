"""Batches of sentences to translate."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.sentence_batches import halve_on_memory_error, lengths_of, plan_sentences
from nmt.errors import UserError


@given(
    lengths=st.lists(st.integers(0, 30), max_size=40),
    size=st.integers(1, 60),
    memory=st.integers(1, 2_000),
    data=st.data(),
)
@pytest.mark.parametrize("unit", ["sentences", "tokens"])
def test_a_plan_has_every_sentence_once_within_size_and_memory(unit, lengths, size, memory, data):
    costs = np.array(
        data.draw(st.lists(st.integers(1, 500), min_size=len(lengths), max_size=len(lengths))), dtype=np.int64
    )
    plan = plan_sentences(np.array(lengths, dtype=np.int64), costs, unit=unit, size=size, memory=memory)
    assert sorted(itertools.chain(*plan)) == [row for row, length in enumerate(lengths) if length]
    order = [lengths[row] for batch in plan for row in batch]
    assert order == sorted(order, reverse=True)
    for batch in plan:
        positions = len(batch) * (1 if unit == "sentences" else max(lengths[row] for row in batch) + 1)
        assert positions <= size or len(batch) == 1
        assert len(batch) * max(costs[row] for row in batch) <= memory or len(batch) == 1


def test_rows_are_halved_until_they_fit():
    tried = []

    def work(rows: list[int]) -> list[int]:
        tried.append(len(rows))
        if len(rows) > 2:
            raise MemoryError
        return [10 * row for row in rows]

    assert halve_on_memory_error(work, list(range(7))) == [10 * row for row in range(7)]
    assert tried == [7, 3, 1, 2, 4, 2, 2]
    with pytest.raises(UserError, match="memory does not suffice for one sentence"):
        halve_on_memory_error(lambda rows: work([*rows, 8, 9]), [0, 1])


@pytest.mark.parametrize("number", [1, 7])
def test_an_error_of_another_kind_is_not_taken_for_memory(number: int) -> None:
    def fail(rows: list[int]) -> list[int]:
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        halve_on_memory_error(fail, list(range(number)))


def test_lengths():
    assert lengths_of([[5, 6], [], [7]]).tolist() == [2, 0, 1]
