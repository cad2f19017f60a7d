"""What a training loop measures between two reports."""

import contextlib
import time
from collections.abc import Iterator
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.training.distributed import SINGLE_PROCESS, Processes


@final
class Meter:
    """Sums over the updates since the last report; reads the device, and other processes, only when asked."""

    def __init__(self, device: torch.device, processes: Processes = SINGLE_PROCESS) -> None:
        self.processes = processes
        self.zero = torch.zeros((), device=device)
        self.in_a_row = self.zero  # skipped updates, up to the last one; windows do not matter
        self.restart()

    def restart(self) -> None:
        """Begin a new window."""
        self.under_way: dict[str, Tensor] = {}  # sums of the update under way
        self.sums = {"loss": self.zero}
        self.counted = self.skipped = self.norm = self.zero
        self.tokens = 0
        self.rate = 0.0
        self.since = time.monotonic()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the time of a block, in which no update is made, out of the speed."""
        begun = time.monotonic()
        yield
        self.since += time.monotonic() - begun

    def add(self, **sums: Float[Tensor, ""]) -> None:
        """Add what a batch has summed over its target tokens, name by name, to the update under way."""
        for name, value in sums.items():
            self.under_way[name] = self.under_way.get(name, self.zero) + value

    def note(self, tokens: int, rate: float, norm: Float[Tensor, ""]) -> None:
        """Note that the update is done; or, if the norm of its gradient is not finite, that it was skipped.

        Tokens and norm are those of all processes.
        """
        finite = norm.isfinite()
        for name, value in self.under_way.items():
            self.sums[name] = self.sums.get(name, self.zero) + torch.where(finite, value, 0.0)  # NaN times 0 is NaN
        self.under_way = {}
        self.counted = self.counted + finite * tokens
        self.skipped = self.skipped + ~finite
        self.in_a_row = (self.in_a_row + 1) * ~finite
        self.tokens += tokens
        self.rate, self.norm = rate, norm

    def read(self) -> dict[str, float]:
        """Return the window's means a token, speed and skipped updates, and the last update's rate and norm.

        Skipped updates count in the speed alone; if there is no other, the means are NaN. Begins a new window.
        """
        self.processes.add_up(list(self.sums.values()))
        counted = self.counted.item() or float("nan")
        found = {name: value.item() / counted for name, value in self.sums.items()}
        found |= {
            "perplexity": float(torch.tensor(found["loss"]).exp()),
            "learning_rate": self.rate,
            "gradient_norm": self.norm.item(),
            "tokens_per_second": self.tokens / (time.monotonic() - self.since),
            "skipped": self.skipped.item(),
        }
        self.restart()
        return found
