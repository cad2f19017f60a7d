"""Checkpoints are loaded while a training replaces them."""

import time
from pathlib import Path

import pytest

from nmt.models.checkpoint import find_checkpoint, load_checkpoint
from tests.chaos.whole import Whole
from tests.processes import Started, Zygote


def load_during(zygote: Zygote, whole: Whole, place: Path, loads: int, updates: int) -> set[int]:
    """Load the checkpoints of trainings that run one after the other; return the updates after which they were saved.

    Every load must succeed, and none may be older than the one before it in the same training.
    """
    seen: set[int] = set()
    done = 0
    while done < loads:
        run = place / f"run-{done}"
        training = start(zygote, whole, run, updates)
        while not (run / "checkpoints" / "best").exists() or not (run / "checkpoints" / "last").exists():
            time.sleep(0.01)
        before = dict.fromkeys(("best", "last"), 0)
        # The last update is seen when the training has nothing more to replace.
        while before["last"] < updates and done < loads:
            for name, step in before.items():
                found = load_checkpoint(run / "checkpoints" / name)
                assert found.step >= step
                before[name] = found.step
                done += 1
            seen |= set(before.values())
        assert zygote.wait(training).status == 0
        assert find_checkpoint(run) == run / "checkpoints" / "best"
    return seen


def start(zygote: Zygote, whole: Whole, run: Path, updates: int) -> Started:
    options = [*whole.options, f"trainer.max_steps={updates}", "trainer.validate_every_steps=1"]
    return zygote.start("train", f"run_dir={run.name}", *options, cwd=run.parent)


def test_loads_during_a_training(zygote: Zygote, whole: Whole, tmp_path: Path) -> None:
    assert len(load_during(zygote, whole, tmp_path, 30, updates=8)) > 2


@pytest.mark.chaos
def test_a_thousand_loads(zygote: Zygote, whole: Whole, tmp_path: Path) -> None:
    """About three minutes: `python -m pytest -m chaos tests/chaos/test_loads.py`."""
    assert len(load_during(zygote, whole, tmp_path, 1_000, updates=40)) > 20
