"""`nmt.train` of several processes that fail in their third update; its arguments are the case and the options."""

import errno
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

import nmt.train
from nmt.data.batch import Batch
from nmt.training.trainer import Trainer

CASES = {"memory": "1", "defect": "1", "killed": "1", "disk": "0"}  # the rank that fails; in another case, all


def fail(trainer: Trainer, case: str) -> None:
    if case == "memory":
        raise MemoryError
    if case == "defect":
        raise ZeroDivisionError("a defect")
    if case == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    for weight in trainer.model.parameters():  # it diverges
        weight.grad = torch.full_like(weight, float("nan"))


def let_updates_fail(case: str) -> None:
    backward = Trainer.backward

    def failing(trainer: Trainer, batch: Batch, num_tokens: int) -> None:
        backward(trainer, batch, num_tokens)
        if trainer.progress.step >= 3:
            fail(trainer, case)

    setattr(Trainer, "backward", failing)  # noqa: B010


def fill_disk() -> None:
    open_file = Path.open

    def failing(path: Path, mode: str = "r", *given: Any, **named: Any) -> Any:
        if mode == "a" and path.name == "metrics.jsonl":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return open_file(path, mode, *given, **named)

    setattr(Path, "open", failing)  # noqa: B010


def main() -> None:
    case = sys.argv.pop(1)
    if CASES.get(case, os.environ["RANK"]) == os.environ["RANK"]:
        fill_disk() if case == "disk" else let_updates_fail(case)
    nmt.train.main()
