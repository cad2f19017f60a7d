"""Training whose process that plans batches, which samples subwords, is ended by the system."""

import os
import signal
from typing import Any

import pytest

from nmt.config.schema import BatchConfig
from nmt.data.batch import BatchWindows, TrainLoader
from nmt.data.tables import EncodedCorpus, Ragged
from nmt.errors import WorkerError
from nmt.text.tokenizer import Tokenizers
from tests.training.toy import Make, equal, toy


def sampled(letters: EncodedCorpus, tokenizers: Tokenizers) -> TrainLoader:
    """Batches of windows that another process makes: eight of 32 pairs, two batches each."""
    config = BatchConfig(unit="sentences", size=16, window=32)
    return TrainLoader(letters, tokenizers, config, seed=1, sampling=0.1)


def sample_letters(monkeypatch: pytest.MonkeyPatch, *, killed_at: int | None = None) -> None:
    """Let sampling leave out first letters of some pairs, and let a window of the first epoch kill its process."""

    def segmented(windows: BatchWindows, rows: Any, place: tuple[int, int]) -> tuple[Ragged, Ragged]:
        if place == (0, killed_at):
            os.kill(os.getpid(), signal.SIGKILL)
        sides = [windows.encoded.source[row][(row + place[1]) % 2 :].tolist() for row in rows.tolist()]
        return Ragged.of(sides), Ragged.of(sides)

    monkeypatch.setattr(BatchWindows, "_segmented", segmented)


@pytest.mark.parametrize("window", [0, 1, 3])
def test_a_planner_that_is_killed_ends_training_which_goes_on_exactly(
    make: Make, letters: EncodedCorpus, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """Where windows 0 to `window - 1` are trained on, two updates each, the state is saved."""
    trainer, saved = make([], model=toy(dropout=0.3), max_steps=20, validate_every_steps=100)
    trainer.loader = sampled(letters, tokenizers)
    sample_letters(monkeypatch, killed_at=window)
    with pytest.raises(WorkerError, match="the process that samples subwords was ended by the system"):
        trainer.fit()
    assert saved.steps("last") == [2 * window]
    sample_letters(monkeypatch)
    resumed, done = make([1.0], model=toy(dropout=0.3), max_steps=20, validate_every_steps=100)
    resumed.loader = sampled(letters, tokenizers)
    resumed.model.load_state_dict(saved.models[-1][2])
    resumed.load_state_dict(saved.states[-1])
    resumed.fit()
    straight, undisturbed = make([1.0], model=toy(dropout=0.3), max_steps=20, validate_every_steps=100)
    straight.loader = sampled(letters, tokenizers)
    straight.fit()
    assert undisturbed.steps("last") == done.steps("last") == [20]
    assert equal(undisturbed.models[-1][2], done.models[-1][2])
    assert not equal(undisturbed.models[-1][2], saved.models[-1][2])


def test_batches_that_wait_for_others_are_not_counted_when_a_planner_is_killed(
    make: Make, letters: EncodedCorpus, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four batches, three make an update: the state, which counts the fourth, is not saved."""
    trainer, saved = make([], max_steps=20, accumulate=3)
    trainer.loader = sampled(letters, tokenizers)
    sample_letters(monkeypatch, killed_at=2)
    with pytest.raises(WorkerError):
        trainer.fit()
    assert trainer.progress.step == 1
    assert saved.states == []
