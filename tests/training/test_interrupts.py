"""Interrupts wait for the end of an update, and never leave half of one."""

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from nmt.models.seq2seq import Seq2Seq
from nmt.training.interrupts import DEFAULT_HANDLERS
from nmt.training.trainer import Trainer
from nmt.training.validation import Validation
from tests.training.toy import Make, copied, equal, toy


@pytest.fixture
def usual_signals() -> Iterator[None]:
    """Handlers as in a foreground process: a shell has its background jobs ignore Ctrl-C."""
    before = {number: signal.signal(number, usual) for number, usual in DEFAULT_HANDLERS.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["update", "validation"])
def test_an_interrupt_waits_for_the_end_of_the_update(make: Make, moment: str, number: signal.Signals) -> None:
    """Training resumed from what was saved equals training without an interrupt."""
    options = {"max_steps": 8, "validate_every_steps": 3, "ema_decay": 0.9, "accumulate": 2}
    straight, _ = make([1.0, 2.0, 3.0], model=toy(dropout=0.3), **options)
    straight.fit()

    interrupted, saved = make([1.0, 2.0, 3.0], model=toy(dropout=0.3), **options)
    if moment == "update":
        interrupted.model.decoder.register_forward_hook(lambda *_: at_step(interrupted, 3, number))
    else:
        validate = interrupted.validate
        interrupted.validate = after(lambda: at_step(interrupted, 3, number), validate)
    handler = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        interrupted.fit()
    assert signal.getsignal(number) is handler
    assert saved.steps("last")[-1] == 3

    resumed, _ = make([2.0, 3.0], model=toy(dropout=0.3), **options)
    torch.manual_seed(99)
    resumed.model.load_state_dict(saved.models[-1][2])
    resumed.load_state_dict(saved.states[-1])
    resumed.fit()
    assert resumed.progress.step == 8
    assert equal(copied(resumed.model), copied(straight.model))
    assert equal(copied(resumed.averaged()), copied(straight.averaged()))


def at_step(trainer: Trainer, step: int, number: signal.Signals) -> None:
    """Interrupt, once, in the update after `step - 1` whole ones."""
    if trainer.progress.step == step and signal.getsignal(number) is not DEFAULT_HANDLERS[number]:
        signal.raise_signal(number)


def after(first: Callable[[], None], validate: Callable[[Seq2Seq], Validation]) -> Callable[[Seq2Seq], Validation]:
    """Call something before each validation."""

    def call(model: Seq2Seq) -> Validation:
        first()
        return validate(model)

    return call


def twice() -> None:
    """Interrupt, and do not wait."""
    for _ in range(2):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("usual_signals")
def test_a_second_interrupt_does_not_wait_and_leaves_what_was_saved(make: Make) -> None:
    """Half an update must never be saved as a whole one."""
    trainer, saved = make([1.0], max_steps=8, validate_every_steps=2)
    trainer.model.decoder.register_forward_hook(lambda *_: twice() if trainer.progress.step == 4 else None)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit()
    assert trainer.progress.step == 4
    assert saved.steps("last") == [2]


@pytest.mark.usefixtures("usual_signals")
def test_a_second_interrupt_within_a_validation_loses_nothing(make: Make) -> None:
    trainer, saved = make([1.0], max_steps=8, validate_every_steps=3)
    validate = trainer.validate
    trainer.validate = after(twice, validate)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit()
    assert saved.steps("last") == [3]
    assert saved.states[-1]["progress"]["best"] is None
    resumed, done = make([1.0, 2.0, 3.0], max_steps=8, validate_every_steps=3)
    resumed.load_state_dict(saved.states[-1])
    resumed.fit()
    assert done.steps("best") == [3, 6, 8]  # that of update 3 is made up for
    assert resumed.progress.best == 3.0
    again, left = make([1.0], max_steps=8, validate_every_steps=3)
    again.load_state_dict(saved.states[-1])
    again.model.decoder.register_forward_hook(lambda *_: twice() if again.progress.step == 4 else None)
    with pytest.raises(KeyboardInterrupt):
        again.fit()
    assert left.steps("last") == [3]  # and nothing of half an update


@pytest.mark.usefixtures("usual_signals")
def test_the_best_is_not_remembered_if_it_could_not_be_saved(make: Make) -> None:
    trainer, saved = make([1.0, 2.0], max_steps=8, validate_every_steps=3)
    save = trainer.save

    def slow(name: str, model: Seq2Seq, *, step: int, training_state: dict[str, Any] | None) -> None:
        if (name, step) == ("best", 6):
            twice()
        save(name, model, step=step, training_state=training_state)

    trainer.save = slow
    with pytest.raises(KeyboardInterrupt):
        trainer.fit()
    assert saved.steps("last") == [3]
    assert saved.states[-1]["progress"]["best"] == 1.0


@pytest.mark.usefixtures("usual_signals")
def test_an_interrupt_of_the_last_validation_is_as_any_other(make: Make) -> None:
    trainer, saved = make([1.0], max_steps=2)
    validate = trainer.validate
    trainer.validate = after(lambda: signal.raise_signal(signal.SIGINT), validate)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit()
    assert saved.steps("best") == [2]
    assert saved.states[-1]["progress"]["validated_step"] == 2


@pytest.mark.usefixtures("usual_signals")
def test_of_several_processes_none_leaves_while_the_state_is_saved(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, saved = make([], max_steps=8)
    monkeypatch.setattr(trainer.processes, "world_size", 2, raising=False)  # another, which says what this one does
    save = trainer.save

    def interrupted(name: str, model: Seq2Seq, *, step: int, training_state: dict[str, Any] | None) -> None:
        twice()
        save(name, model, step=step, training_state=training_state)

    trainer.save = interrupted
    trainer.model.decoder.register_forward_hook(lambda *_: twice() if trainer.progress.step == 4 else None)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit()
    assert saved.steps("last") == [4]
