"""Batches that do not fit in memory."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.batch import Batch, collate
from nmt.data.tables import EncodedCorpus
from nmt.errors import UserError
from nmt.training.memory import BatchHalving, count_positions
from nmt.training.trainer import Trainer
from tests.training.toy import Make, copied, equal, toy

LENGTHS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12)


def batch_of(lengths: list[tuple[int, int]]) -> Batch:
    source, target = ([np.arange(4, 4 + pair[side], dtype=np.int32) for pair in lengths] for side in (0, 1))
    wanted = [np.ones((target + 1, source + 1), dtype=np.float32) for source, target in lengths]
    return collate(source, target, np.arange(len(lengths)), wanted)


def some(letters: EncodedCorpus, rows: range) -> Batch:
    return collate([letters.source[row] for row in rows], [letters.target[row] for row in rows], np.array(rows))


def limit_memory(trainer: Trainer, monkeypatch: pytest.MonkeyPatch, most: int, *, after: bool) -> list[int]:
    """Let larger batches fail, before their gradient is added or after it; return the sizes of those that did."""
    backward, failed = trainer.backward, []

    def limited(batch: Batch, num_tokens: int) -> None:
        if after or len(batch) <= most:
            backward(batch, num_tokens)
        if len(batch) > most:
            failed.append(len(batch))
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(trainer, "backward", limited)
    return failed


@given(LENGTHS, st.integers(0, 11), st.integers(1, 12))
def test_a_part_is_the_batch_of_its_pairs(lengths: list[tuple[int, int]], start: int, size: int) -> None:
    rows = slice(start % len(lengths), start % len(lengths) + size)
    part, expected = batch_of(lengths).part(rows), batch_of(lengths[rows])
    for name, value in vars(expected).items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(getattr(part, name), value), name
        elif name != "rows":
            assert getattr(part, name) == value, name
    assert part.rows.tolist() == list(range(len(lengths)))[rows]


@given(LENGTHS, st.integers(1, 200))
def test_parts_fit_and_are_all_there_is(lengths: list[tuple[int, int]], limit: int) -> None:
    memory = BatchHalving(1)
    memory.max_positions = limit
    parts = memory.split(batch_of(lengths))
    assert all(count_positions(part) <= limit or len(part) == 1 for part in parts)
    assert [row for part in parts for row in part.rows] == list(range(len(lengths)))


@pytest.mark.parametrize("after", [False, True])
def test_an_update_that_does_not_fit_is_the_same_in_parts(
    make: Make, letters: EncodedCorpus, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    notices: list[str] = []
    monkeypatch.setattr("nmt.training.memory.logger.info", lambda text, *values: notices.append(text % values))
    found = []
    for most in (99, 5):
        model = toy().double()
        trainer, _ = make([], model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), max_steps=2)
        failed = limit_memory(trainer, monkeypatch, most, after=after)
        for _ in range(2):
            trainer.update([some(letters, range(16)), some(letters, range(16, 40))])
        found.append((copied(model), trainer.meter.read()["loss"]))
    assert failed[:2] == [16, 8]
    assert failed.count(16) == 1  # it is known to be too large
    assert len(notices) == 1
    assert "memory does not suffice for a batch of 16 pairs" in notices[0]
    assert not equal(found[0][0], copied(toy().double()))
    for name in found[0][0]:
        torch.testing.assert_close(found[0][0][name], found[1][0][name], rtol=0, atol=1e-12)
    assert found[0][1] == pytest.approx(found[1][1], abs=1e-12)


def test_an_attempt_that_failed_does_not_move_the_baseline_of_reinforce(
    make: Make, letters: EncodedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, _ = make([], max_steps=1)
    trainer.reinforce.baseline = initial = torch.tensor(-1.0)
    seen = []

    def backward(batch: Batch, num_tokens: int) -> None:
        seen.append((len(batch), trainer.reinforce.baseline))
        trainer.reinforce.baseline = torch.tensor(float(len(batch)))
        if len(batch) > 5:
            raise MemoryError

    monkeypatch.setattr(trainer, "backward", backward)
    trainer.update([some(letters, range(16))])
    assert seen == [(16, initial), (8, initial), (4, initial), *[(4, torch.tensor(4.0))] * 3]


def test_a_pair_that_does_not_fit_ends_training(
    make: Make, letters: EncodedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, _ = make([], max_steps=1)
    limit_memory(trainer, monkeypatch, 0, after=False)
    with pytest.raises(
        UserError,
        match=r"memory does not suffice for a pair of \d+ and \d+ subwords \(.*can't allocate memory\): lower",
    ):
        trainer.update([some(letters, range(16))])


def test_another_error_is_not_taken_for_it(make: Make, letters: EncodedCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, _ = make([], max_steps=1)

    def fail(batch: Batch, num_tokens: int) -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(trainer, "backward", fail)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        trainer.update([some(letters, range(16))])


def test_several_processes_cannot_halve_a_batch() -> None:
    with pytest.raises(UserError, match=r"lower batch\.size"):
        BatchHalving(2).record_out_of_memory(batch_of([(3, 3), (4, 4)]), MemoryError())
