"""What processes that train together say to each other.

Each has a whole copy of the model and batches of its own. Gradients are added up between the way back and the
update, so that one update of N processes is that of one process on the batches of all. The first process alone
reports, validates and writes.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, ParamSpec, Protocol, TypeVar, final, runtime_checkable

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from nmt.errors import UserError
from nmt.models.checkpoint import resolve_device
from nmt.training.torchrun_env import PLACE, Launch

P = ParamSpec("P")
T = TypeVar("T")

STARTING = timedelta(minutes=10)  # the longest that processes wait for each other at the beginning
WAITING = timedelta(days=7)  # later on: the first may learn subwords, or validate, for hours
BUCKET = 2**23  # numbers added up at a time


@runtime_checkable
class Processes(Protocol):
    """The processes of a training. What one calls here, all must call, in the same order."""

    rank: int
    size: int

    def device(self, name: str) -> torch.device:
        """Return the device of this process for `auto`, `cpu` or `cuda`; raise UserError if it is not there."""

    def clock(self) -> float:
        """Return seconds of one clock, the same in all processes from one `total` or `by_first` to the next."""

    def total(self, *numbers: float) -> list[float]:
        """Return the sum of each number over all processes."""

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all processes."""

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by that of the first process."""

    def part_randomness(self, seed: int) -> None:
        """Let each process draw random numbers of its own from here on."""

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes."""

    def by_first(self, function: Callable[P, T]) -> Callable[P, T]:
        """Wrap a function: the first process calls it, and all return, or raise, what it did."""

    def each(self, function: Callable[P, T]) -> Callable[P, T]:
        """Wrap a function that says nothing to other processes: all call it, and if one raises, all do."""


@final
class SingleProcess:
    """The one process of a training."""

    rank = 0
    size = 1

    def device(self, name: str) -> torch.device:
        return resolve_device(name)

    def clock(self) -> float:
        return time.monotonic()

    def total(self, *numbers: float) -> list[float]:
        return list(numbers)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        pass

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        pass

    def part_randomness(self, seed: int) -> None:
        pass

    def gather(self, value: T) -> list[T]:
        return [value]

    def by_first(self, function: Callable[P, T]) -> Callable[P, T]:
        return function

    def each(self, function: Callable[P, T]) -> Callable[P, T]:
        return function


SINGLE_PROCESS = SingleProcess()


@final
class Group:
    """One of several processes; `join` makes it. Tensors on the CPU travel by gloo, those on a GPU by NCCL."""

    def __init__(self, launch: Launch, group: dist.ProcessGroup) -> None:
        self.rank = launch.rank
        self.size = launch.size
        self._local_rank = launch.local_rank
        self._group = group
        self._now = 0.0
        self.total()  # sets the clock

    def device(self, name: str) -> torch.device:
        device = resolve_device(name)
        if device.type == "cpu":
            return device
        count = torch.cuda.device_count()
        if self._local_rank >= count:
            raise UserError(
                f"more processes than GPUs: torch sees {count} on this machine; start one process a GPU, "
                f"--nproc-per-node={count}, or set trainer.device=cpu"
            )
        device = torch.device("cuda", self._local_rank)
        torch.cuda.set_device(device)
        return device

    def clock(self) -> float:
        return self._now

    def total(self, *numbers: float) -> list[float]:
        told = torch.tensor([*numbers, self._time()], dtype=torch.float64)
        dist.all_reduce(told, group=self._group)
        *totals, self._now = told.tolist()
        return totals

    @torch.no_grad()
    def add_up(self, tensors: Sequence[Tensor]) -> None:
        for bucket in buckets(tensors, BUCKET):
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            dist.all_reduce(flat, group=self._group)
            for tensor, total in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
                tensor.copy_(total.view_as(tensor))

    @torch.no_grad()
    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            dist.broadcast(tensor, src=0, group=self._group)

    def part_randomness(self, seed: int) -> None:
        torch.manual_seed(int(np.random.SeedSequence((seed, self.rank)).generate_state(1)[0]))

    def gather(self, value: T) -> list[T]:
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self._group)
        return values

    def by_first(self, function: Callable[P, T]) -> Callable[P, T]:
        def call(*arguments: P.args, **options: P.kwargs) -> T:
            value, error = attempt(function, *arguments, **options) if self.rank == 0 else (None, None)
            told: list[Any] = [value, public(error), self._time()]
            dist.broadcast_object_list(told, src=0, group=self._group, device=torch.device("cpu"))
            others, heard, self._now = told
            raise_first([error, heard])
            return value if self.rank == 0 else others  # type: ignore[return-value]

        return call

    def each(self, function: Callable[P, T]) -> Callable[P, T]:
        def call(*arguments: P.args, **options: P.kwargs) -> T:
            value, error = attempt(function, *arguments, **options)
            raise_first([error, *self.gather(public(error))])
            return value  # type: ignore[return-value]

        return call

    def _time(self) -> float:
        return time.monotonic() if self.rank == 0 else 0.0


@contextlib.contextmanager
def join(launch: Launch, device: str) -> Iterator[Processes]:
    """Meet the other processes, if there are any, for as long as the block lasts.

    Args:
        launch: which of them this is; where to meet is told by MASTER_ADDR and MASTER_PORT.
        device: `auto`, `cpu` or `cuda`: what their tensors will be on.
    """
    if launch.size == 1:
        yield SINGLE_PROCESS
        return
    backend = "cpu:gloo,cuda:nccl" if device != "cpu" and torch.cuda.is_available() else "gloo"
    try:
        dist.init_process_group(backend, rank=launch.rank, world_size=launch.size, timeout=STARTING)
    except (ValueError, RuntimeError) as error:  # among the latter all of torch.distributed's
        place = ":".join(os.environ.get(name, "") for name in PLACE)
        raise UserError(
            f"the {launch.size} processes cannot meet at {place}: {str(error).splitlines()[0]}; start all of them, "
            "with an address that all can reach and a port that is free"
        ) from error
    try:
        yield Group(launch, dist.new_group(timeout=WAITING))
    finally:
        dist.destroy_process_group()


def add_up_gradients(parameters: Iterable[Tensor], processes: Processes) -> None:
    """Replace each gradient by its sum over all processes; a process that has none adds nothing.

    What has no gradient anywhere is left without: an optimizer does not touch it.
    """
    all_parameters = list(parameters)
    counts = processes.total(*(parameter.grad is not None for parameter in all_parameters))
    gradients = []
    for parameter, count in zip(all_parameters, counts, strict=True):
        if count:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            gradients.append(parameter.grad)
    processes.add_up(gradients)


def buckets(tensors: Sequence[Tensor], size: int) -> list[list[Tensor]]:
    """Part tensors, in order, into lists of at most `size` numbers; a larger one is a list by itself."""
    found: list[list[Tensor]] = []
    room = 0
    for tensor in tensors:
        if tensor.numel() > room or not found:
            found.append([])
            room = size
        found[-1].append(tensor)
        room -= tensor.numel()
    return found


def attempt(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> tuple[T | None, Exception | None]:
    """Return what a function returns, or what it raises."""
    try:
        return function(*arguments, **options), None
    except Exception as error:
        return None, error


def public(error: Exception | None) -> BaseException | None:
    """Return what other processes shall raise for an error here: a defect of ours is told where it happened only."""
    return error if error is None or isinstance(error, UserError) else SystemExit(1)


def raise_first(errors: Iterable[BaseException | None]) -> None:
    """Raise the first error that there is."""
    for error in errors:
        if error is not None:
            raise error
