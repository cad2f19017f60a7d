"""Progress of training: when to validate, when to stop, and the best validation so far."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nmt.config.schema import TrainerConfig
from nmt.evaluation.registry import METRICS

# Updates after which samples are drawn before the first validation: alignments change most at the beginning.
EARLY_SAMPLES = frozenset(factor * 10**power for factor in (1, 3) for power in range(1, 7)) | {1}
VALIDATED = ("validated_epoch", "validated_step", "validated_seconds")  # at the last validation
SAVED_COUNTERS = ("step", "epochs", "stale", "best", "best_loss", "best_of", *VALIDATED)


@dataclass
class Progress:
    """Counters of a run, saved in its checkpoints."""

    step: int = 0
    epochs: float = 0.0
    stale: int = 0  # validations since the best one
    best: float | None = None
    best_loss: float | None = None  # the validation loss beside it
    best_of: str | None = None  # digest of the text and the settings that it was measured with (`Validator.digest`)
    seconds_before: float = 0.0  # of earlier processes, if the run is continued
    validated_epoch: int = 0
    validated_step: int = -1
    validated_seconds: float = 0.0
    clock: Callable[[], float] = time.monotonic
    started: float = field(init=False)  # when this process began to train, and with which counters
    first_step: int = field(init=False)
    first_epochs: float = field(init=False)

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.started, self.first_step, self.first_epochs = self.clock(), self.step, self.epochs

    @property
    def seconds(self) -> float:
        """Training time, including that of earlier processes if the run is continued."""
        return self.seconds_before + self.clock() - self.started

    def improves(self, metric: str, metrics: Mapping[str, Any]) -> bool:
        """Record the watched metric of a validation; return whether it is the best so far. NaN never is.

        Of equal values, that with the lower loss is better: BLEU is 0 where no translation has four words in a row of
        its reference, as in short sentences.
        """
        sign = -1.0 if METRICS[metric].better == "lower" else 1.0
        value, loss = metrics[metric], metrics["loss"]
        if not math.isfinite(value):
            better = False
        elif value == self.best:
            better = self.best_loss is not None and loss < self.best_loss
        else:
            better = self.best is None or sign * value > sign * self.best
        if better:
            self.best, self.best_loss = value, loss
        self.stale = 0 if better else self.stale + 1
        return better

    def state_dict(self) -> dict[str, Any]:
        """Return the counters and the training time."""
        return {"seconds": self.seconds, **{name: getattr(self, name) for name in SAVED_COUNTERS}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        earlier = {"validated_seconds": state["seconds"], "best_of": None, "best_loss": None}
        state = earlier | state  # earlier versions have not saved them
        for name in SAVED_COUNTERS:
            setattr(self, name, state[name])
        self.seconds_before = state["seconds"]
        self._begin()


def fractions_done(progress: Progress, config: TrainerConfig) -> dict[str, float]:
    """Return the fraction of training that is done, for each limit that is set."""
    limits = {
        "max_steps": (progress.step, config.max_steps),
        "max_epochs": (progress.epochs, config.max_epochs),
        "max_minutes": (progress.seconds / 60, config.max_minutes),
    }
    return {name: used / limit for name, (used, limit) in limits.items() if limit is not None}


def fraction_done(progress: Progress, config: TrainerConfig) -> float:
    """Return the fraction of training that is done: the largest over the limits that are set, 0 without any."""
    return max(fractions_done(progress, config).values(), default=0.0)


def seconds_left(progress: Progress, config: TrainerConfig) -> float | None:
    """Return the time until the first limit is reached; None if no limit is set, or this process made no update yet.

    Updates and epochs are extrapolated from the speed of this process: earlier ones may have run on another machine.
    """
    if progress.step == progress.first_step:
        return None
    seconds = progress.clock() - progress.started
    estimates = [] if config.max_minutes is None else [60 * config.max_minutes - progress.seconds]
    for done, first, limit in (
        (progress.step, progress.first_step, config.max_steps),
        (progress.epochs, progress.first_epochs, config.max_epochs),
    ):
        if limit is not None and done > first:
            estimates.append(seconds * (limit - done) / (done - first))
    return max(0.0, min(estimates)) if estimates else None


def ending(progress: Progress, config: TrainerConfig) -> str:
    """Return why training ended, in words."""
    reached = [name for name, fraction in fractions_done(progress, config).items() if fraction >= 1.0]
    reasons = [f"trainer.{name}={getattr(config, name)} is reached" for name in reached]
    if out_of_patience(progress, config):
        reasons.append(
            f"trainer.patience={config.patience}, no better {config.metric} for {progress.stale} validations"
        )
    return "; ".join(reasons)


def out_of_patience(progress: Progress, config: TrainerConfig) -> bool:
    """Return whether validations have gone without improvement for longer than the patience."""
    return config.patience is not None and progress.stale >= config.patience


def validation_due(progress: Progress, config: TrainerConfig) -> bool:
    """Return whether to validate after this update."""
    by_epochs, by_minutes = config.validate_every_epochs, config.validate_every_minutes
    if by_epochs is None and config.validate_every_steps is None and by_minutes is None:
        by_epochs = 1
    if by_minutes is not None and progress.seconds - progress.validated_seconds >= 60 * by_minutes:
        return True
    if config.validate_every_steps is not None and progress.step % config.validate_every_steps == 0:
        return True
    return by_epochs is not None and int(progress.epochs) >= progress.validated_epoch + by_epochs


def validates_by_time(config: TrainerConfig) -> bool:
    """Return whether validations that are not scheduled follow the clock: there is a time limit to divide."""
    return config.max_minutes is not None and not (config.validate_every_steps or config.validate_every_epochs)


def samples_due(progress: Progress) -> bool:
    """Return whether to show samples after this update, which is not followed by a validation."""
    return progress.validated_step < 0 and progress.step in EARLY_SAMPLES
