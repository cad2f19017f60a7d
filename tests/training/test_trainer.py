"""The training loop, on a toy: copying a few letters."""

import itertools
import math
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.config.schema import GuidedAlignmentConfig, ScheduleConfig
from nmt.data.batch import Batch, collate
from nmt.data.tables import EncodedCorpus
from nmt.errors import UserError
from nmt.models.seq2seq import Seq2Seq
from nmt.training.guided_alignment import guided_alignment_loss
from nmt.training.trainer import Trainer
from tests.runs import records
from tests.training.toy import Make, copied, equal, toy


def mean_loss(model: Seq2Seq, batch: Batch) -> float:
    with torch.no_grad():
        log_probs = model.project(model.eval()(batch).features).log_softmax(dim=-1)
    gold = log_probs.gather(2, batch.target_out[:, :, None])[:, :, 0]
    return -float(gold[batch.target_mask].mean())


def some(letters: EncodedCorpus, rows: range) -> Batch:
    return collate([letters.source[row] for row in rows], [letters.target[row] for row in rows], np.array(rows))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_toy_learns_to_copy(make: Make, letters: EncodedCorpus, precision: str) -> None:
    trainer, saved = make([1.0], max_steps=200, precision=precision, validate_every_steps=1000)
    before = mean_loss(trainer.model, some(letters, range(64)))
    trainer.fit()
    assert before > 2.0
    assert mean_loss(trainer.model, some(letters, range(64))) < 0.3  # 0.01 to 0.2 with a dozen seeds, either precision
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}
    assert saved.steps("last") == saved.steps("best") == [200]


def test_two_half_batches_are_one_batch(make: Make, letters: EncodedCorpus) -> None:
    """The mean is over the tokens of all, although the halves have different numbers of them."""
    found = []
    for rows in ([range(16)], [range(4), range(4, 16)]):
        model = toy().double()
        trainer, _ = make([], model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), max_steps=1)
        trainer.update([some(letters, part) for part in rows])
        found.append(copied(model))
    assert not equal(found[0], copied(toy().double()))
    for name in found[0]:
        torch.testing.assert_close(found[0][name], found[1][name], rtol=0, atol=1e-12)


def guided(letters: EncodedCorpus, rows: range) -> Batch:
    """Letters that ought to be attended to where they are copied from; those of odd rows are not taught."""
    sides = [letters.source[row] for row in rows]
    alignment = [np.eye(len(side), dtype=np.float32) * (row % 2 == 0) for row, side in zip(rows, sides, strict=True)]
    return collate(sides, sides, np.array(rows), alignment)


def test_guided_alignment_is_a_weighted_term_of_the_mean_over_target_tokens(make: Make, letters: EncodedCorpus) -> None:
    """However the sentences are divided into batches; the weight is that of the epochs before the update."""
    batch = guided(letters, range(16))
    assert batch.alignment is not None
    model = toy().double()
    decoded = model(batch)
    gold = model.project(decoded.features).log_softmax(dim=-1).gather(2, batch.target_out[:, :, None])[:, :, 0]
    term = guided_alignment_loss(decoded.weights, batch.alignment, "squared")
    expected = (0.25 * term - gold[batch.target_mask].sum()) / batch.num_target_tokens
    gradients = dict(zip(copied(model), torch.autograd.grad(expected, list(model.parameters())), strict=True))

    settings = GuidedAlignmentConfig(weight=0.5, decay=0.25, kind="squared")
    for rows in ([range(16)], [range(3), range(3, 16)]):
        model = toy().double()
        before = copied(model)
        sgd = torch.optim.SGD(model.parameters(), lr=1.0)
        trainer, _ = make([], model=model, optimizer=sgd, max_steps=1, guided_alignment=settings)
        trainer.clip_norm = float("inf")
        trainer.progress.epochs = 0.5
        trainer.update([guided(letters, part) for part in rows])
        for name, weight in copied(model).items():
            torch.testing.assert_close(before[name] - weight, 0.01 * gradients[name], rtol=1e-7, atol=1e-9)
        reported = trainer.meter.read()
        assert reported["alignment_loss"] == pytest.approx(term.item() / batch.num_target_tokens)
        assert reported["loss"] == pytest.approx(-float(gold[batch.target_mask].mean().detach()))
        assert "alignment_loss" not in trainer.meter.read()


@pytest.mark.parametrize(("accumulate", "updates"), [(1, 16), (3, 6), (50, 1)])
def test_an_update_does_not_go_beyond_the_last_epoch(make: Make, accumulate: int, updates: int) -> None:
    """An epoch has eight batches; the last update takes what is left."""
    trainer, _ = make([1.0] * 9, max_epochs=2, accumulate=accumulate)
    trainer.fit()
    assert (trainer.progress.step, trainer.progress.epochs) == (updates, 2.0)


def test_an_update_takes_as_many_batches_as_asked(make: Make) -> None:
    trainer, saved = make([1.0], max_steps=3, accumulate=3)
    sizes = []
    update = trainer.update

    def counted(batches: list[Batch]) -> None:
        sizes.append(len(batches))
        update(batches)

    trainer.update = counted  # type: ignore[method-assign]
    trainer.fit()
    assert sizes == [3, 3, 3]
    # 256 sentences are 8 batches an epoch, so the ninth is the first of the second epoch.
    assert (trainer.loader.epoch, trainer.loader.position) == (1, 1)
    assert saved.steps("last") == [3]


def test_the_average_is_validated_and_kept_as_best(make: Make) -> None:
    trainer, saved = make([1.0, 2.0], max_steps=6, validate_every_steps=3, ema_decay=0.6)
    expected: dict[str, Tensor] = {}
    update = trainer.update

    def follow(batches: list[Batch]) -> None:
        update(batches)
        new, count = copied(trainer.model), trainer.progress.step - 1
        keep = min(0.6, (1 + count) / (10 + count)) if count else 0.0
        for name, weight in new.items():
            expected[name] = keep * expected.get(name, weight) + (1 - keep) * weight

    trainer.update = follow  # type: ignore[method-assign]
    trainer.fit()
    (_, _, best), (_, _, last) = saved.models[-2:]
    assert [name for name, _, _ in saved.models] == ["best", "last", "best", "last"]
    assert equal(saved.validated[-1], best)
    assert equal(copied(trainer.model), last)
    assert not equal(best, last)
    for name in best:
        torch.testing.assert_close(best[name], expected[name], rtol=0, atol=1e-6)


def test_best_is_the_best_by_the_metric(make: Make) -> None:
    trainer, saved = make([5.0, 7.0, 6.0, 7.0, 8.0], max_steps=10, validate_every_steps=2)
    trainer.fit()
    assert saved.steps("best") == [2, 4, 10]
    assert saved.steps("last") == [2, 4, 6, 8, 10]
    assert trainer.progress.best == 8.0


def test_training_ends_when_patience_is_out(make: Make) -> None:
    trainer, saved = make([5.0, 7.0, 6.0, 7.0, 8.0], max_steps=100, validate_every_steps=2, patience=2)
    trainer.fit()
    assert trainer.progress.step == 8
    assert saved.steps("best") == [2, 4]


def test_the_end_is_validated_once(make: Make) -> None:
    trainer, saved = make([1.0, 2.0], max_steps=5, validate_every_steps=3)
    trainer.fit()
    assert saved.steps("last") == [3, 5]
    trainer, saved = make([1.0], max_epochs=1)
    trainer.fit()
    assert saved.steps("last") == [8]
    assert trainer.progress.epochs == 1.0


def test_updates_skipped_before_a_validation_are_reported_after_it(make: Make, tmp_path: Path) -> None:
    trainer, saved = make([1.0, 2.0], max_steps=8, validate_every_steps=3, log_every=4)
    spoil(trainer, {2})
    saved.metrics = itertools.repeat(1.0)
    trainer.fit()
    assert [record.get("skipped") for record in records(tmp_path, "train")] == [1, None]


def test_a_model_that_has_diverged_is_not_validated(make: Make) -> None:
    trainer, saved = make([], max_steps=50, validate_every_steps=12, log_every=1000)
    spoil(trainer, range(1, 51))
    with pytest.raises(UserError, match="the last 12 gradients were not finite"):
        trainer.fit()
    assert saved.validated == []


def test_the_state_is_saved_now_and_then(make: Make) -> None:
    trainer, saved = make([1.0], max_steps=4, save_every_minutes=1e-9)
    trainer.fit()
    assert saved.steps("last") == [1, 2, 3, 4, 4]  # and at the validation that ends it
    assert [state["progress"]["step"] for state in saved.states] == [1, 2, 3, 4, 4]
    trainer, saved = make([1.0], max_steps=4, save_every_minutes=None)
    trainer.fit()
    assert saved.steps("last") == [4]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_steps": 2, "max_epochs": 9}, "training ends at update 2: trainer.max_steps=2 is reached"),
        ({"max_epochs": 1}, "training ends at update 8: trainer.max_epochs=1 is reached"),
        (
            {"max_steps": 9, "validate_every_steps": 2, "patience": 2},
            "training ends at update 6: trainer.patience=2, no better bleu for 2 validations",
        ),
    ],
)
def test_the_reason_why_training_ends_is_reported(
    make: Make, tmp_path: Path, limits: dict[str, int], reason: str
) -> None:
    trainer, _ = make([1.0, 1.0, 1.0], **limits)
    trainer.fit()
    assert reason in (tmp_path / "train.log").read_text(encoding="utf-8")


def ticking(trainer: Trainer, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let each update take so long."""
    now = [0.0]
    monkeypatch.setattr(trainer.processes, "clock", lambda: now[0])
    trainer.progress.clock, trainer.progress.started, trainer.last_save = (lambda: now[0]), 0.0, 0.0
    trainer.model.decoder.register_forward_pre_hook(
        lambda *_: now.__setitem__(0, seconds * trainer.progress.step) if trainer.model.training else None
    )


def test_the_state_is_saved_when_minutes_have_passed_since_it_was(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, saved = make([1.0], max_steps=11, save_every_minutes=1, validate_every_steps=100)
    ticking(trainer, monkeypatch, 25.0)
    trainer.fit()
    assert saved.steps("last") == [3, 6, 9, 11]


def test_no_batch_is_lost_when_time_is_up_between_the_batches_of_an_update(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, _ = make([1.0, 1.0], max_minutes=1, accumulate=3, validate_every_steps=100)
    ticking(trainer, monkeypatch, 25.0)
    now, used = trainer.progress.clock, []
    fetch, update = trainer.batches, trainer.update

    def batches() -> Iterator[Batch]:
        for number, batch in enumerate(fetch()):
            if number == 4:
                trainer.progress.clock = lambda: now() + 60.0
            yield batch

    monkeypatch.setattr(trainer, "batches", batches)
    monkeypatch.setattr(trainer, "update", lambda batches: (used.append(len(batches)), update(batches)))
    trainer.fit()
    assert used == [3, 2]
    assert trainer.loader.position == 5


def test_validations_come_when_minutes_have_passed_since_the_last(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, saved = make([1.0, 2.0, 3.0, 4.0], max_steps=12, validate_every_minutes=1)
    ticking(trainer, monkeypatch, 25.0)
    trainer.fit()
    assert saved.steps("best") == [3, 6, 9, 12]


def test_minutes_until_the_next_validation_are_those_of_training(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of long sentences may take as long to draw as updates."""
    trainer, saved = make([1.0, 2.0, 3.0, 4.0], max_steps=12, validate_every_minutes=1)
    ticking(trainer, monkeypatch, 25.0)
    drawn = [0.0]
    clock = trainer.progress.clock
    trainer.progress.clock = lambda: clock() + drawn[0]
    monkeypatch.setattr(type(trainer.reporter), "samples", lambda *_, **__: drawn.__setitem__(0, drawn[0] + 50.0))
    trainer.fit()
    assert saved.steps("best") == [3, 6, 9, 12]


def test_there_is_a_validation_an_epoch(make: Make) -> None:
    trainer, saved = make([1.0, 2.0, 3.0], max_epochs=3)
    trainer.fit()
    assert len(saved.validated) == 3


def rates_of(trainer: Trainer) -> list[float]:
    """The learning rate of each update of a training."""
    rates: list[float] = []
    trainer.optimizer.register_step_pre_hook(lambda *_: rates.append(trainer.optimizer.param_groups[0]["lr"]))
    trainer.fit()
    return rates


def test_the_rate_falls_with_the_share_of_training_done(make: Make) -> None:
    cosine = ScheduleConfig(kind="cosine", warmup_steps=2, final_factor=0.1)
    trainer, _ = make([1.0], max_steps=10, schedule=cosine, validate_every_steps=100)
    expected = [0.01 * (0.1 + 0.9 * (1 + math.cos(math.pi * step / 10)) / 2) for step in range(1, 11)]
    assert rates_of(trainer) == pytest.approx([expected[0] / 2, *expected[1:]])


def test_the_rate_is_reduced_where_validations_gain_nothing(make: Make) -> None:
    """And stays so when training is resumed."""
    plateau = ScheduleConfig(kind="plateau", warmup_steps=0, patience=0, factor=0.5)
    common: dict[str, Any] = {"schedule": plateau, "validate_every_steps": 2}
    trainer, saved = make([5.0, 4.0, 3.0], max_steps=6, **common)
    assert rates_of(trainer) == pytest.approx([0.01] * 4 + [0.005] * 2)
    resumed, _ = make([2.0], max_steps=8, **common)
    resumed.model.load_state_dict(saved.models[-1][2])
    resumed.load_state_dict(saved.states[-1])
    assert rates_of(resumed) == pytest.approx([0.0025] * 2)


def test_a_restored_state_is_the_one_that_was_saved(make: Make) -> None:
    """All of it, but for the time."""
    trainer, saved = make([5.0, 4.0, 3.0, 2.0], max_steps=8, validate_every_steps=2, patience=9, ema_decay=0.9)
    trainer.reinforce.baseline = torch.tensor(0.7)
    trainer.fit()
    assert saved.states[-1]["progress"]["stale"] == 3
    other, _ = make([], max_steps=8, patience=9, ema_decay=0.9)
    other.load_state_dict(saved.states[-1])
    restored = other.state_dict()
    for state in (restored, saved.states[-1]):
        state["progress"].pop("seconds")
        state["order"] = str(state["loader"].pop("order"))
    assert restored.pop("order") == saved.states[-1].pop("order")
    torch.testing.assert_close(restored, saved.states[-1], rtol=0, atol=0)


def test_the_gradient_is_clipped(make: Make, letters: EncodedCorpus) -> None:
    model = toy()
    trainer, _ = make([], model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), max_steps=1)
    trainer.clip_norm = 1e-3
    before = copied(model)
    trainer.update([some(letters, range(16))])
    moved = torch.cat([(before[name] - weight).flatten() for name, weight in copied(model).items()])
    # The schedule's rate, 0.01, is the optimizer's.
    assert float(moved.norm()) == pytest.approx(0.01 * 1e-3, rel=1e-2)
    assert trainer.meter.read()["gradient_norm"] > 1e-2


def spoil(trainer: Trainer, steps: Container[int]) -> None:
    """Make the gradient of some updates NaN."""
    trainer.model.output.weight.register_hook(
        lambda gradient: gradient * (float("nan") if trainer.progress.step in steps else 1.0)
    )


def test_an_update_whose_gradient_is_not_finite_is_skipped(make: Make, tmp_path: Path) -> None:
    trainer, saved = make([1.0, 2.0], max_steps=6, validate_every_steps=3, log_every=3, ema_decay=0.5)
    spoil(trainer, {3})
    seen = []
    update = trainer.update

    def watched(batches: list[Batch]) -> None:
        update(batches)
        seen.append(copied(trainer.model))

    trainer.update = watched  # type: ignore[method-assign]
    trainer.fit()
    assert equal(seen[1], seen[2])
    assert not equal(seen[2], seen[3])
    assert all(weight.isfinite().all() for _, _, weights in saved.models for weight in weights.values())
    first, second = (record for record in records(tmp_path, "train"))
    assert first["skipped"] == 1
    assert "skipped" not in second
    assert 0 < first["loss"] < 5
    assert "skipped since the last report, their gradients not being finite: 1" in (tmp_path / "train.log").read_text(
        encoding="utf-8"
    )


def test_training_that_has_diverged_ends(make: Make) -> None:
    trainer, saved = make([1.0], max_steps=50, validate_every_steps=5, log_every=4)
    spoil(trainer, range(7, 51))
    saved.metrics = itertools.repeat(1.0)
    with pytest.raises(UserError, match=r"last 10 gradients were not finite.*learning_rate"):
        trainer.fit()
    assert trainer.progress.step == 16
    assert all(weight.isfinite().all() for weight in saved.models[-1][2].values())
