"""The training loop. Validating, reporting and saving are handed in."""

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol, final, runtime_checkable

import torch
from torch.optim.swa_utils import AveragedModel

from nmt.config.schema import OptimizerConfig, TrainerConfig
from nmt.data.batch import Batch
from nmt.data.loader import TrainLoader
from nmt.errors import UserError
from nmt.models.seq2seq import Seq2Seq
from nmt.training.distributed import SINGLE_PROCESS, Processes, add_up_gradients
from nmt.training.guided_alignment import guidance_loss, guidance_weight
from nmt.training.interrupts import deferred_interrupts
from nmt.training.meter import Meter
from nmt.training.objective import Objective, token_loss
from nmt.training.optimizer import Schedule, build_average, clipped_step, restore
from nmt.training.precision import autocast_dtype
from nmt.training.progress import Progress, ending, out_of_patience, share_done, validation_due
from nmt.training.reinforce import Reinforce
from nmt.training.reporting import NullReporter, Reporter
from nmt.training.validation import Validation

ASTRAY = 10  # updates skipped in a row


@runtime_checkable
class Save(Protocol):
    """Writes a checkpoint under a name, `best` or `last`."""

    def __call__(self, name: str, model: Seq2Seq, *, step: int, training_state: dict[str, Any] | None) -> None: ...


@final
class Trainer:
    """Trains a model until a limit is reached; `best` is judged by `config.metric`."""

    def __init__(
        self,
        model: Seq2Seq,
        loader: TrainLoader,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        config: TrainerConfig,
        optimizer_config: OptimizerConfig,
        *,
        device: torch.device,
        validate: Callable[[Seq2Seq], Validation],
        save: Save,
        reporter: Reporter | NullReporter,
        objective: Objective = token_loss,
        processes: Processes = SINGLE_PROCESS,
    ) -> None:
        self.model = model
        self.loader = loader
        self.optimizer = optimizer
        self.schedule = schedule
        self.config = config
        self.clip_norm = optimizer_config.clip_norm or float("inf")
        self.device = device
        self.autocast_dtype = autocast_dtype(config.precision, device)
        self.validate = validate
        self.save = save
        self.reporter = reporter
        self.objective = objective
        self.processes = processes
        self.progress = Progress(clock=processes.clock)
        self.average: AveragedModel | None = None
        if config.ema_decay is not None:
            self.average = build_average(model, config.ema_decay)
        self.reinforce = Reinforce(config.reinforce, processes)
        self.meter = Meter(device, processes)
        self.saved = processes.clock()
        self.whole = False  # whether the state is that after an update, and nothing under way

    def fit(self) -> None:
        """Train, validate and save until a limit is reached or patience is out.

        On KeyboardInterrupt the update, or validation, under way is finished and the state saved before it is
        raised again, so that training can go on as if nothing had been. A second one does not wait: what was saved
        last is then kept, unless the state is whole.
        """
        with deferred_interrupts(self.processes) as raise_interrupt:
            try:
                for batches in self.updates():
                    self.update(batches)
                    self.whole = True
                    self.after_update()
                    raise_interrupt()
                    self.whole = False
                self.whole = True
                if self.progress.validated_step != self.progress.step:
                    self.checkpoint()
            except KeyboardInterrupt:
                if self.whole:
                    self.save_last()
                raise
        self.reporter.notice(f"training ends at update {self.progress.step}: {ending(self.progress, self.config)}")

    def after_update(self) -> None:
        """Report, validate and save, where it is time."""
        if self.progress.step % self.config.log_every == 0:
            self.report()
            self.check_course()
        if validation_due(self.progress, self.config):
            self.checkpoint()
        elif self.processes.clock() - self.saved >= 60 * (self.config.save_every_minutes or math.inf):
            self.save_last()

    def updates(self) -> Iterator[list[Batch]]:
        """Yield the batches of each update, epoch after epoch, until training is over."""
        batches: list[Batch] = []
        while not self.finished():
            for batch in self.loader:
                batches.append(batch)
                if len(batches) == self.config.accumulate:
                    yield batches
                    batches = []
                if self.finished():
                    break

    def finished(self) -> bool:
        """Tell whether a limit is reached or patience is out."""
        return share_done(self.progress, self.config) >= 1.0 or out_of_patience(self.progress, self.config)

    def update(self, batches: list[Batch]) -> None:
        """Do one update on the mean loss of the real target tokens of the batches, those of all processes."""
        self.model.train()
        self.progress.step += 1
        rate = self.schedule.set(self.progress.step, share_done(self.progress, self.config))
        num_tokens = int(*self.processes.total(sum(batch.num_target_tokens for batch in batches)))
        for batch in batches:
            self.backward(batch.to(self.device, non_blocking=True), num_tokens)
        add_up_gradients(self.model.parameters(), self.processes)
        norm = clipped_step(self.optimizer, self.clip_norm)
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update_parameters(self.model)
        self.progress.epochs = self.loader.epoch + self.loader.position / len(self.loader)
        self.meter.note(num_tokens, rate, norm)

    def backward(self, batch: Batch, num_tokens: int) -> None:
        """Add a batch's share of the gradient."""
        with torch.autocast(self.device.type, self.autocast_dtype, enabled=self.autocast_dtype is not None):
            decoded = self.model(batch)
            loss = self.objective(self.model, decoded, batch, label_smoothing=self.config.label_smoothing)
        objective = loss.objective
        if decoded.sampled.log_prob is not None:
            objective = objective + self.reinforce(decoded.sampled, loss.cross_entropies, batch.target_mask)
        if batch.alignment is not None:
            guidance = guidance_loss(decoded.weights, batch.alignment, self.config.guided_alignment.kind)
            objective = objective + guidance_weight(self.config.guided_alignment, self.progress.epochs) * guidance
            self.meter.add(alignment_loss=guidance.detach())
        self.meter.add(loss=loss.cross_entropy)
        (objective / num_tokens).backward()

    def report(self) -> None:
        """Report the updates since the last report."""
        done = share_done(self.progress, self.config)
        eta = self.progress.seconds * (1.0 - done) / done if done else None
        self.reporter.train(
            step=self.progress.step, epoch=self.progress.epochs, eta_seconds=eta, share_done=done, **self.meter.read()
        )

    def check_course(self) -> None:
        """Raise UserError when nothing has been learned for a while."""
        if self.meter.in_a_row >= ASTRAY:
            raise UserError(
                f"training has gone astray: the last {int(self.meter.in_a_row)} gradients were not finite "
                "and nothing is learned any more; lower optimizer.learning_rate or optimizer.clip_norm, or set "
                "trainer.precision=fp32 if it is bf16. What the run has saved is whole"
            )

    def checkpoint(self) -> None:
        """Validate the model (the average, if there is one), keep it if it is the best, and save the state."""
        self.check_course()
        with self.meter.paused():
            model = self.averaged()
            validation = self.validate(model)
            self.whole = False  # until the best weights are saved too
            self.progress.validated_epoch = int(self.progress.epochs)
            self.progress.validated_step = self.progress.step
            improved = self.progress.improves(self.config.metric, validation.metrics[self.config.metric])
            self.schedule.validated(improved)
            self.reporter.validation(step=self.progress.step, metrics=validation.metrics, samples=validation.samples)
            if improved:
                self.save("best", model, step=self.progress.step, training_state=None)
            self.whole = True
            self.save_last()

    def averaged(self) -> Seq2Seq:
        """Return the weights to judge and to keep."""
        if self.average is None:
            return self.model
        module = self.average.module
        assert isinstance(module, Seq2Seq)
        return module

    def save_last(self) -> None:
        """Save all that is needed to go on exactly from here."""
        self.save("last", self.model, step=self.progress.step, training_state=self.state_dict())
        self.saved = self.processes.clock()

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the weights and the configuration."""
        return {
            "progress": self.progress.state_dict(),
            "loader": self.loader.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "reinforce": self.reinforce.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "random": torch.stack(self.processes.gather(torch.get_rng_state())),
            "cuda_random": []
            if self.device.type != "cuda"
            else self.processes.gather(torch.cuda.get_rng_state(self.device)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state; the weights are loaded already."""
        self.progress.load_state_dict(state["progress"])
        self.loader.load_state_dict(state["loader"])
        restore(self.optimizer, state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.reinforce.load_state_dict(state["reinforce"])
        if self.average is not None and state["average"] is not None:
            self.average.load_state_dict(state["average"])
        random = state["random"]
        # A copy: torch reads the memory of a row from its tensor's beginning.
        torch.set_rng_state(random.view(-1, random.shape[-1])[self.processes.rank].clone())
        if self.device.type == "cuda" and state["cuda_random"]:
            torch.cuda.set_rng_state(state["cuda_random"][self.processes.rank], self.device)
