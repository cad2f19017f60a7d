"""`deterministic=true`: the same weights, bit by bit."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.config.schema import TrainConfig, TrainerConfig
from nmt.errors import UserError
from nmt.training.determinism import use_deterministic_kernels
from tests.processes import Zygote
from tests.runs import QUIET

STEPS = (*QUIET, "deterministic=true", "trainer.max_steps=6", "trainer.validate_every_steps=3")


def weights(run: Path) -> str:
    return hashlib.sha256((run / "checkpoints" / "last" / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("fast", ["auto", pytest.param("off", marks=pytest.mark.slow)])
def test_two_runs_are_one(zygote: Zygote, tmp_path: Path, tiny_options: list[str], fast: str) -> None:
    """Also on the readable path: `python -m pytest -m slow tests/training/test_determinism.py`."""
    options = [*tiny_options, *STEPS, "threads=2", "model.dropout=0.1", f"model.fast={fast}"]
    for name in ("a", "b"):
        done = zygote.run("train", f"run_dir={name}", *options, cwd=tmp_path)
        assert done.status == 0, done.errors
    assert weights(tmp_path / "a") == weights(tmp_path / "b")


def test_two_runs_of_two_processes_are_one(
    together: Callable[..., Any], tmp_path: Path, tiny_options: list[str]
) -> None:
    for name in ("a", "b"):
        both = together("nmt.train", f"run_dir={name}", *tiny_options, *STEPS, "model.dropout=0.1", cwd=tmp_path)
        assert [each.returncode for each in both] == [0, 0], both[0].stderr
    assert weights(tmp_path / "a") == weights(tmp_path / "b")


@pytest.mark.parametrize("name", ["max_minutes", "validate_every_minutes"])
def test_the_clock_is_refused(name: str) -> None:
    limits: dict[str, Any] = {"max_minutes": None, "max_steps": 3, name: 2.0}
    with pytest.raises(UserError, match=rf"trainer\.{name}=2, which depends on the clock"):
        use_deterministic_kernels(TrainConfig(trainer=TrainerConfig(**limits)))
