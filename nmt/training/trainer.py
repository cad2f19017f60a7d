"""The training loop. Validating, reporting and saving are handed in."""

import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol, cast, final, runtime_checkable

import torch

from nmt.config.schema import TrainerConfig
from nmt.data.batch import Batch, TrainLoader
from nmt.errors import UserError, WorkerError
from nmt.models.seq2seq import Seq2Seq
from nmt.training.console import MAX_SILENT_SECONDS
from nmt.training.contention import ContentionMonitor
from nmt.training.distributed import SINGLE_PROCESS, ProcessGroup, no_sync, random_state, restore_random_state
from nmt.training.interrupts import deferred_interrupts
from nmt.training.memory import BatchHalving
from nmt.training.meter import Meter
from nmt.training.objective import Objective, Risk, TrainingStep, token_loss
from nmt.training.optimizer import Schedule, build_average, clipped_step, load_optimizer_state
from nmt.training.precision import autocast_dtype
from nmt.training.progress import Progress, ending, fraction_done, out_of_patience, samples_due, validation_due
from nmt.training.reinforce import Reinforce
from nmt.training.reporting import NullReporter, Reporter
from nmt.training.tensorboard import Sample
from nmt.training.validation import Validation

MAX_SKIPPED_UPDATES = 10  # in a row

logger = logging.getLogger(__name__)


@runtime_checkable
class Save(Protocol):
    """Writes a checkpoint under a name, `best` or `last`."""

    def __call__(self, name: str, model: Seq2Seq, *, step: int, training_state: dict[str, Any] | None) -> None: ...


@final
@dataclass(eq=False)
class Trainer:
    """Trains a model until a limit is reached; `best` is chosen by `config.metric`. A `clip_norm` of 0 is off."""

    model: Seq2Seq
    loader: TrainLoader
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    config: TrainerConfig
    clip_norm: float
    _: KW_ONLY
    device: torch.device
    validate: Callable[[Seq2Seq], Validation]
    save: Save
    reporter: Reporter | NullReporter
    sample: Callable[[Seq2Seq], list[Sample]] | None = None
    objective: Objective = token_loss
    risk: Risk | None = None
    processes: ProcessGroup = SINGLE_PROCESS

    def __post_init__(self) -> None:
        config, processes = self.config, self.processes
        self.clip_norm = self.clip_norm or math.inf
        self.autocast_dtype = autocast_dtype(config.precision, self.device)
        self.progress = Progress(clock=processes.clock)
        self.reinforce = Reinforce(config.reinforce, processes)
        training_step = TrainingStep(self.model, self.objective, self.reinforce, config, self.risk)
        self.training_step = processes.data_parallel(training_step)  # the weights are those of rank 0 from here on
        self.average = None if config.ema_decay is None else build_average(self.model, config.ema_decay)
        self.meter = Meter(self.device, processes)
        self.halving = BatchHalving(processes.world_size)
        self.contention = ContentionMonitor(torch.get_num_threads() if self.device.type == "cpu" else 1)
        self.last_save = processes.clock()
        self.last_report = -math.inf  # so that progress is shown after the first update
        # Whether the state is that between two updates. False from the moment a batch is fetched, which the loader
        # already counts, until its update is complete, and while a validation may still save `best`.
        self.resumable = False

    def fit(self) -> None:
        """Train, validate and save until a limit is reached or patience is exhausted.

        On KeyboardInterrupt the current update, or validation, is finished and the state saved before it is raised
        again, so that training can be resumed exactly. A second one is raised at once: the state is then saved only
        if it is resumable.

        Raises:
            UserError: too many updates in a row were skipped because their gradients were not finite, or memory does
                not suffice for a batch and it cannot be halved.
            WorkerError: the process that plans batches was ended; the state is saved if it is resumable.
        """
        with deferred_interrupts(self.processes) as raise_interrupt:
            try:
                if self.validation_was_cut_short():
                    self.checkpoint()
                self.resumable = False
                for batches in self.updates():
                    self.update(batches)
                    self.resumable = True
                    self.after_update()
                    raise_interrupt()
                    self.resumable = False
                self.resumable = True
                if self.progress.validated_step != self.progress.step:
                    self.checkpoint()
            except (KeyboardInterrupt, WorkerError):
                if self.resumable:
                    self.save_last()
                raise
        logger.info("training ends at update %d: %s", self.progress.step, ending(self.progress, self.config))

    def validation_was_cut_short(self) -> bool:
        """Return whether training was saved after an update whose validation an interrupt did not let finish."""
        progress = self.progress
        return progress.step > 0 and progress.validated_step != progress.step and validation_due(progress, self.config)

    def updates(self) -> Iterator[list[Batch]]:
        """Yield the batches of each update, epoch after epoch, until training is over; the last may have fewer."""
        batches: list[Batch] = []
        most_epochs = self.config.max_epochs or math.inf
        try:
            for batch in self.batches():
                batches.append(batch)
                if len(batches) == self.config.accumulate or self.loader.epochs >= most_epochs:
                    yield batches
                    batches = []
            if batches:  # time is up between the batches of an update; the loader counts them
                yield batches
        except WorkerError:
            # The loader counts no batch of the window that it cannot plan. One rank cannot save without the others.
            self.resumable = not batches and self.processes.world_size == 1
            raise

    def batches(self) -> Iterator[Batch]:
        """Yield batches, epoch after epoch, until training is over."""
        while not self.finished():
            for batch in self.loader:
                yield batch
                if self.finished():
                    break

    def finished(self) -> bool:
        """Return whether a limit is reached or patience is exhausted."""
        return fraction_done(self.progress, self.config) >= 1.0 or out_of_patience(self.progress, self.config)

    def update(self, batches: list[Batch]) -> None:
        """Do one update on the mean loss per real target token of these batches, over all ranks."""
        self.model.train()
        self.progress.step += 1
        learning_rate = self.schedule.set(self.progress.step, fraction_done(self.progress, self.config))
        num_tokens = int(self.processes.sum_over_ranks(sum(batch.num_target_tokens for batch in batches)))
        baseline = self.reinforce.state_dict()
        while not self.add_gradients(batches, num_tokens):  # memory did not suffice: again, in smaller parts
            self.reinforce.load_state_dict(baseline)
            self.optimizer.zero_grad(set_to_none=True)
            self.meter.begin_update()
        gradient_norm = clipped_step(self.optimizer, self.clip_norm)
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update_parameters(self.model)
        self.progress.epochs = self.loader.epochs
        self.meter.end_update(num_tokens, learning_rate, gradient_norm)

    def add_gradients(self, batches: list[Batch], num_tokens: int) -> bool:
        """Add the gradients of batches; return False where memory did not suffice, after which parts are smaller."""
        parts = [part for batch in batches for part in self.halving.split(batch)]
        for number, part in enumerate(parts, start=1):
            is_last = number == len(parts)  # only then are gradients averaged over the ranks
            try:
                with contextlib.nullcontext() if is_last else no_sync(self.training_step):
                    self.backward(part, num_tokens)
            except (RuntimeError, MemoryError) as error:
                self.halving.record_out_of_memory(part, error)
                return False
        return True

    def backward(self, batch: Batch, num_tokens: int) -> None:
        """Add the gradient of a batch's part of the mean over `num_tokens` tokens."""
        batch = batch.to(self.device, non_blocking=True)
        with torch.autocast(self.device.type, self.autocast_dtype, enabled=self.autocast_dtype is not None):
            losses = self.training_step(batch, self.progress.epochs)
        self.meter.add(**losses.reported)
        # Gradients are averaged over ranks, but those of the ranks' parts have to be summed.
        (losses.objective * self.processes.world_size / num_tokens).backward()

    def after_update(self) -> None:
        """Report, validate and save, where it is due."""
        is_due = self.progress.step % self.config.log_every == 0
        if is_due or self.processes.clock() - self.last_report >= MAX_SILENT_SECONDS:
            self.last_report = self.processes.clock()
            self.contention.check()
            if is_due:
                self.reporter.train(self.progress, self.meter.read())
                self.processes.on_all_ranks(self.check_skipped)
            else:
                self.reporter.progress(self.progress, self.meter.measure())
        if validation_due(self.progress, self.config):
            self.checkpoint()
        elif self.sample is not None and samples_due(self.progress) and not self.finished():
            with self.meter.paused():
                self.reporter.samples(step=self.progress.step, samples=self.sample(self.averaged()))
        elif self.processes.clock() - self.last_save >= 60 * (self.config.save_every_minutes or math.inf):
            self.save_last()

    def check_skipped(self) -> None:
        """Raise UserError if too many updates in a row were skipped."""
        if self.meter.skipped_in_a_row >= MAX_SKIPPED_UPDATES:
            raise UserError(
                f"training has diverged: the last {int(self.meter.skipped_in_a_row)} gradients were not finite "
                "and their updates were skipped; lower optimizer.learning_rate or optimizer.clip_norm, or set "
                "trainer.precision=fp32 if it is bf16. The checkpoints saved so far are intact"
            )

    def checkpoint(self) -> None:
        """Validate the model (its moving average, if there is one), save it if it is the best, and save the state."""
        self.processes.on_all_ranks(self.check_skipped)
        with self.meter.paused():
            model = self.averaged()
            validation = self.validate(model)
            self.resumable = False  # until the best weights are saved too
            self.progress.validated_epoch = int(self.progress.epochs)
            self.progress.validated_step = self.progress.step
            improved = self.progress.improves(self.config.metric, validation.metrics)
            self.schedule.validated(improved)
            step, digest = self.progress.step, self.progress.best_of
            self.reporter.validation(step=step, metrics=validation.metrics, samples=validation.samples, digest=digest)
            if improved:
                self.save("best", model, step=self.progress.step, training_state=None)
            self.progress.validated_seconds = self.progress.seconds
            self.resumable = True
            self.save_last()

    def averaged(self) -> Seq2Seq:
        """Return the model with the weights to validate and to save as `best`."""
        return self.model if self.average is None else cast(Seq2Seq, self.average.module)

    def save_last(self) -> None:
        """Save everything needed to resume exactly from here."""
        self.save("last", self.model, step=self.progress.step, training_state=self.state_dict())
        self.last_save = self.processes.clock()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of training without weights and configuration; collective."""
        return {
            "progress": self.progress.state_dict(),
            "loader": self.loader.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "reinforce": self.reinforce.state_dict(),
            "meter": self.meter.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            **random_state(self.device, self.processes),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of training; the weights are loaded apart."""
        self.progress.load_state_dict(state["progress"])
        self.loader.load_state_dict(state["loader"])
        load_optimizer_state(self.optimizer, state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.reinforce.load_state_dict(state["reinforce"])
        if "meter" in state:  # runs of before have none
            self.meter.load_state_dict(state["meter"])
        if self.average is not None and state["average"] is not None:
            self.average.load_state_dict(state["average"])
        restore_random_state(state, self.device, self.processes)
