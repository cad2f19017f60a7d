"""AdamW: as torch's to the last bit, and without torch's compiler."""

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nmt.fast.optimizer import AdamW
from tests.runs import QUIET, ROOT

TRAINING = """
import sys
from nmt.train import main

main()
print({"torch._dynamo", "matplotlib"} & set(sys.modules))
"""


def trained(optimizer_class: type[torch.optim.AdamW], state: dict[str, Any] | None = None) -> tuple[nn.Module, Any]:
    """A module after four updates, and the optimizer's state."""
    torch.manual_seed(0)
    module, data = nn.Linear(3, 2), torch.randn(5, 3)
    groups: list[dict[str, Any]] = [{"params": [module.weight]}, {"params": [module.bias], "weight_decay": 0.0}]
    optimizer = optimizer_class(groups, lr=0.1, weight_decay=0.5, fused=True)
    if state is not None:
        optimizer.load_state_dict(copy.deepcopy(state))
    for _ in range(4):
        module(data).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        assert all(parameter.grad is None for parameter in module.parameters())
    return module, optimizer.state_dict()


def test_weights_and_state_are_those_of_torchs() -> None:
    for state in (None, trained(torch.optim.AdamW)[1]):
        ours, theirs = trained(AdamW, state), trained(torch.optim.AdamW, state)
        torch.testing.assert_close(ours[0].state_dict(), theirs[0].state_dict(), rtol=0, atol=0)
        torch.testing.assert_close(ours[1]["state"], theirs[1]["state"], rtol=0, atol=0)
        assert ours[1]["param_groups"] == theirs[1]["param_groups"]


def test_a_training_imports_neither_the_compiler_nor_what_draws(tiny_options: list[str], tmp_path: Path) -> None:
    """In a process of its own, without samples: this one may have both."""
    options = [*tiny_options, *QUIET, "trainer.max_steps=2", "run_dir=run"]
    done = subprocess.run(
        [sys.executable, "-c", TRAINING, *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["set()"]), done.stderr
