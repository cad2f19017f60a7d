"""Loss, speed and gradient norms over the updates between two reports."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.training.distributed import SINGLE_PROCESS, ProcessGroup


@final
class Meter:
    """Sums over the updates since the last report; only `read` waits for the device and for other ranks."""

    def __init__(self, device: torch.device, processes: ProcessGroup = SINGLE_PROCESS) -> None:
        self.processes = processes
        self.zero = torch.zeros((), device=device)
        self.skipped_in_a_row = self.zero  # up to the last update; not reset by `read`
        self.restart()

    def restart(self) -> None:
        self.begin_update()
        self.sums = {"loss": self.zero}
        self.counted_tokens = self.skipped = self.gradient_norm = self.zero
        self.tokens = 0
        self.learning_rate = 0.0
        self.is_continued = False  # from a state, until the next update
        self.started = time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        """Return the window so far, over all ranks, so that a resumed run reports what an undisturbed one does."""
        sums = dict(zip(self.sums, self.processes.all_reduce_(torch.stack(list(self.sums.values()))), strict=True))
        return {"sums": sums, "counted_tokens": self.counted_tokens, "skipped": self.skipped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue a window, unless the terms of the objective are others now. Rank 0 gets the sums of all ranks; speed
        is measured from now on.
        """
        self.is_continued = True
        share = 1.0 if self.processes.rank == 0 else 0.0
        self.sums = {name: value.to(self.zero.device) * share for name, value in state["sums"].items()}
        self.counted_tokens = torch.as_tensor(state["counted_tokens"], device=self.zero.device)
        self.skipped = torch.as_tensor(state["skipped"], device=self.zero.device)

    def begin_update(self) -> None:
        """Forget what was added since the last `end_update`."""
        self.update_sums: dict[str, Tensor] = {}

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time of a block, in which no update is made, from the speed."""
        paused = time.monotonic()
        yield
        self.started += time.monotonic() - paused

    def add(self, **sums: Float[Tensor, ""]) -> None:
        """Add sums over the target tokens of a batch, in nats, by name, to the current update."""
        for name, value in sums.items():
            self.update_sums[name] = self.update_sums.get(name, self.zero) + value

    def end_update(self, tokens: int, learning_rate: float, gradient_norm: Float[Tensor, ""]) -> None:
        """Count the current update; one whose gradient norm is not finite was skipped.

        Its target `tokens` and its gradient norm before clipping are those over all ranks.
        """
        finite = gradient_norm.isfinite()
        if self.is_continued and self.update_sums.keys() != self.sums.keys():  # means are of the same updates
            self.sums, self.counted_tokens = {}, self.zero
        self.is_continued = False
        for name, value in self.update_sums.items():
            self.sums[name] = self.sums.get(name, self.zero) + torch.where(finite, value, 0.0)  # NaN times 0 is NaN
        self.begin_update()
        self.counted_tokens = self.counted_tokens + finite * tokens
        self.skipped = self.skipped + ~finite
        self.skipped_in_a_row = (self.skipped_in_a_row + 1) * ~finite
        self.tokens += tokens
        self.learning_rate, self.gradient_norm = learning_rate, gradient_norm

    def read(self) -> dict[str, float]:
        """Return `measure()`, and begin a new window; collective."""
        measured = self.measure()
        self.restart()
        return measured

    def measure(self) -> dict[str, float]:
        """Return what was measured since the last call of `read`, over all ranks; collective.

        Returns:
            Means per target token of what `add` was given, in nats; `perplexity`; `learning_rate` and `gradient_norm`
            of the last update; `tokens_per_second`; and `skipped`, the number of skipped updates, which count in the
            speed alone. The means are NaN if all were skipped.
        """
        sums = self.processes.all_reduce_(torch.stack(list(self.sums.values()))).tolist()
        counted_tokens = self.counted_tokens.item() or float("nan")
        means = {name: value / counted_tokens for name, value in zip(self.sums, sums, strict=True)}
        return means | {
            "perplexity": float(torch.tensor(means["loss"]).exp()),
            "learning_rate": self.learning_rate,
            "gradient_norm": self.gradient_norm.item(),
            "tokens_per_second": self.tokens / (time.monotonic() - self.started),
            "skipped": self.skipped.item(),
        }
