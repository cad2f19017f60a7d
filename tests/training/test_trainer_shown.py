"""What is shown while a model is trained: samples before the first validation, and progress."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.training.progress import Progress
from tests.training.toy import Make, equal, toy


def test_samples_are_shown_before_the_first_validation(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, _ = make([1.0, 2.0, 3.0], max_steps=110, validate_every_steps=40)
    shown: list[int] = []
    trainer.sample = lambda model: []
    monkeypatch.setattr(type(trainer.reporter), "samples", lambda self, *, step, samples: shown.append(step))
    trainer.fit()
    assert shown == [1, 10, 30, 40, 80, 110]
    shown.clear()
    trainer, _ = make([1.0], max_steps=30, validate_every_steps=100)
    trainer.sample = lambda model: []
    trainer.fit()
    assert shown == [1, 10, 30]  # the last by the validation at the end


def test_samples_before_a_validation_change_nothing(make: Make) -> None:
    found = []
    for sample in (None, lambda model: [model.eval(), torch.no_grad()][:0]):
        trainer, saved = make([1.0], model=toy(dropout=0.3), max_steps=12, validate_every_steps=100)
        trainer.sample = sample
        torch.manual_seed(3)
        trainer.fit()
        found.append(saved.models[-1][2])
    assert equal(*found)


def test_progress_is_shown_from_the_first_update(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = 0.0
    trainer, _ = make([1.0], max_steps=30, log_every=20, validate_every_steps=100)
    shown: list[int] = []
    monkeypatch.setattr(trainer.processes, "clock", lambda: now)
    monkeypatch.setattr(trainer, "finished", lambda: False)

    def note(self: Any, progress: Progress, measured: dict[str, float]) -> None:
        assert measured["loss"] > 0
        shown.append(progress.step)

    monkeypatch.setattr(type(trainer.reporter), "progress", note)
    for batches in itertools.islice(trainer.updates(), 30):
        now += 1.2
        trainer.update(batches)
        trainer.after_update()
    assert shown == [1, 5, 9, 13, 17, 20, 24, 28]  # 4 s after the last time, and where it is due
    events = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [event["step"] for event in events] == [20]
