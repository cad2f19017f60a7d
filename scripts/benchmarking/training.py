"""The speed of training, through the trainer that users run."""

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice, pairwise
from typing import Any, NamedTuple

import torch

from benchmarking.arithmetic import Work, spared_flop, update_flop
from benchmarking.machine import describe, gflops_apart, peak_rss_mib, synchronize
from nmt.config.schema import TrainConfig
from nmt.data.batch import Batch
from nmt.training.trainer import Trainer


class Repeat(NamedTuple):
    """The time of some updates, and their work."""

    seconds: float
    updates: int
    work: Work

    @property
    def target_tokens_per_second(self) -> float:
        """Target tokens per second, end marks included, padding not."""
        return self.work.target_tokens / self.seconds


def measure_training(config: TrainConfig, trainer: Trainer, *, updates: int, repeats: int) -> dict[str, Any]:
    """Return speed, memory and arithmetic of training.

    The share of the machine is the rate of the arithmetic done (without work saved by equal words) divided by the rate
    of large matrix products: the mean of a measurement before and one after each repeat, since other programs may slow
    the machine.

    Args:
        config: that of the trainer.
        trainer: a trainer, as `start_training` returns it.
        updates: updates in a repeat.
        repeats: the number of measurements, after one to warm up.
    """
    measured = timed_updates(trainer, updates)
    next(measured)  # to warm up
    with gflops_apart(trainer.device, trainer.autocast_dtype or torch.float32) as gflops:
        rates, repeated = [gflops()], []
        for _ in range(repeats):
            repeated.append(next(measured))
            rates.append(gflops())
    memory = peak_memory(trainer.device)
    works = [each.work.twice() if config.trainer.consistency else each.work for each in repeated]
    nominal = [update_flop(trainer.model, config.model, work) / 1e9 for work in works]
    spared = [spared_flop(trainer.model, work) / 1e9 for work in works]
    done = [(all_of - part) / each.seconds for all_of, part, each in zip(nominal, spared, repeated, strict=True)]
    shares = [2 * own / sum(around) for own, around in zip(done, pairwise(rates), strict=True)]
    return {
        **speed(repeated),
        **memory,
        "gflop_per_update": sum(nominal) / (updates * repeats),
        "gflop_spared_per_update": sum(spared) / (updates * repeats),
        "gflops_reached": statistics.median(done),
        "gflops_reached_of_repeats": done,
        "gflops_machine": statistics.median(rates),
        "gflops_machine_of_measurements": rates,
        "gflops_machine_spread": spread(rates),
        "share_of_machine": statistics.median(shares),
        "share_of_machine_spread": spread(shares),
        "share_of_machine_of_repeats": shares,
        "updates": updates,
        "repeats": repeats,
        "batch": asdict(config.batch),
        "precision": config.trainer.precision,
        "vocabulary": [len(trainer.model.encoder.embedding.weight), len(trainer.model.output.weight)],
        **describe(trainer.device),
    }


def repeat_updates(trainer: Trainer, *, updates: int, repeats: int) -> list[Repeat]:
    """Measure every `updates` updates, after as many to warm up.

    Batches are new ones, as in training: a program may be faster on shapes that it has seen before.
    """
    return list(islice(timed_updates(trainer, updates), 1, 1 + repeats))


def timed_updates(trainer: Trainer, updates: int) -> Iterator[Repeat]:
    """Train, pass after pass through the corpus; yield after every `updates` updates.

    The time includes fetching the batches: it is measured up to the first batch of the next update.
    """
    stream = trainer.updates()
    batches = next(stream)
    while True:
        seen: list[Batch] = []
        synchronize(trainer.device)
        began = time.perf_counter()
        for _ in range(updates):
            trainer.update(batches)
            seen += batches
            batches = next(stream)
        synchronize(trainer.device)
        yield Repeat(time.perf_counter() - began, updates, Work.of(seen))


def speed(measured: Sequence[Repeat]) -> dict[str, Any]:
    """Return medians over repeats, and the spread of target tokens/s."""
    work = sum((each.work for each in measured), Work())
    updates = sum(each.updates for each in measured)
    rates = [each.target_tokens_per_second for each in measured]
    both = [(each.work.source_tokens + each.work.target_tokens) / each.seconds for each in measured]
    return {
        "target_tokens_per_second": statistics.median(rates),
        "target_tokens_per_second_of_repeats": rates,
        "spread": spread(rates),
        "source_target_tokens_per_second": statistics.median(both),
        "sentences_per_second": statistics.median(each.work.sentences / each.seconds for each in measured),
        "milliseconds_per_update": statistics.median(1e3 * each.seconds / each.updates for each in measured),
        "target_tokens_per_update": work.target_tokens / updates,
        "target_fill": work.target_tokens / work.target_positions,
    }


def spread(rates: Sequence[float]) -> float:
    """Return the range of the rates, as a fraction of their median."""
    return (max(rates) - min(rates)) / statistics.median(rates)


def peak_memory(device: torch.device) -> dict[str, float]:
    """Return the peak memory so far in MiB: of the process, and of a CUDA device."""
    memory = {"peak_rss_mib": peak_rss_mib()}
    if device.type == "cuda":
        memory["peak_device_mib"] = torch.cuda.max_memory_allocated(device) / 2**20
    return memory
