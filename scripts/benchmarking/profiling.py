"""Profiles of training and translation: seconds by phase, and the operators that take most time."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, final

import torch
from torch import Tensor, nn

from benchmarking.machine import synchronize
from benchmarking.training import timed_updates
from nmt.models.decoder import Decoded
from nmt.training.trainer import Trainer
from nmt.translator import Translator

TRAINING_PHASES = ("data", "encoder", "decoder", "loss", "backward", "optimizer")
TRANSLATION_PHASES = ("text", "encoder", "decoder", "search")
OPERATORS = 20  # rows of the table


@final
class PhaseClock:
    """A stopwatch that sums seconds by phase; it synchronizes with the device at every mark."""

    def __init__(self, device: torch.device, phases: tuple[str, ...]) -> None:
        self.device = device
        self.seconds = dict.fromkeys(phases, 0.0)
        self.last = time.perf_counter()

    def mark(self, phase: str) -> None:
        """Add the time since the last mark to a phase."""
        synchronize(self.device)
        now = time.perf_counter()
        self.seconds[phase] += now - self.last
        self.last = now


def training_phases(trainer: Trainer, *, updates: int) -> dict[str, float]:
    """Return the seconds of each phase over some updates, after as many to warm up.

    The loss is the vocabulary projection, the cross-entropy and the gradient of both; the encoder's seconds include
    the copy of the batch to the device, the decoder's the keys of attention, the optimizer's clipping.
    """
    next(timed_updates(trainer, updates))
    clock = PhaseClock(trainer.device, TRAINING_PHASES)

    def after_decoder(module: nn.Module, arguments: Any, output: Decoded) -> None:
        clock.mark("decoder")
        output.features.register_hook(after_loss)

    def after_loss(gradient: Tensor) -> None:
        clock.mark("loss")

    hooks = (
        trainer.model.encoder.register_forward_hook(lambda *_: clock.mark("encoder")),
        trainer.model.decoder.register_forward_hook(after_decoder),
    )
    stream = trainer.updates()
    with timed(trainer, "backward", clock, after="backward"):
        clock.last = time.perf_counter()
        for _ in range(updates):
            batches = next(stream)
            clock.mark("data")
            trainer.update(batches)
            clock.mark("optimizer")
    for hook in hooks:
        hook.remove()
    return clock.seconds


def translation_phases(translator: Translator, sentences: list[str]) -> dict[str, float]:
    """Return the seconds of each phase of a translation, after one to warm up.

    Text is segmentation, padding, and the processing of finished hypotheses; the decoder's seconds include the output
    layer; search is the selection of hypotheses by their scores. Batches are translated one after the other.
    """
    translator.map_batches = map
    translator.translate(sentences)
    clock = PhaseClock(translator.device, TRANSLATION_PHASES)
    with (
        timed(translator.model, "start", clock, before="text", after="encoder"),
        timed(translator.model, "step", clock, before="search", after="decoder"),
    ):
        translator.translate(sentences)
    clock.mark("text")
    return clock.seconds


@contextlib.contextmanager
def timed(owner: object, name: str, clock: PhaseClock, *, after: str, before: str | None = None) -> Iterator[None]:
    """Mark the clock as `after` whenever a method returns, and as `before`, if given, whenever it is called."""
    method = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        if before is not None:
            clock.mark(before)
        result = method(*arguments, **options)
        clock.mark(after)
        return result

    setattr(owner, name, call)
    try:
        yield
    finally:
        delattr(owner, name)


def operators(device: torch.device, work: Callable[[], object]) -> str:
    """Return the table of torch.profiler, with the operators that took most time on the device."""
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
    with profile(activities=kinds) as profiler:
        work()
        synchronize(device)
    order = "self_cuda_time_total" if device.type == "cuda" else "self_cpu_time_total"
    return str(profiler.key_averages().table(sort_by=order, row_limit=OPERATORS, max_name_column_width=50))


def phase_table(seconds: dict[str, float]) -> str:
    """Return seconds by phase as a table, with fractions of the total."""
    total = sum(seconds.values())
    lines = [f"  {name:<12}{part:>10.3f} s{part / total:>8.1%}" for name, part in seconds.items()]
    return "\n".join([*lines, f"  {'all':<12}{total:>10.3f} s"])
