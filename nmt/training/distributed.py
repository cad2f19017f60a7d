"""Training in one or several processes: DistributedDataParallel for gradients, and what torch.distributed lacks.

Every rank has a full copy of the model and its own batches; only rank 0 reports and writes. This module adds to
torch.distributed a single error message for all ranks (`on_rank_zero`, `on_all_ranks`, `rank_zero_first`), distribution
of validation work over ranks (`distributed_map`), and a common clock.
"""

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from nmt.errors import ALL_RANKS, UserError, note_rank, one_line
from nmt.models.checkpoint import resolve_device
from nmt.training.torchrun_env import MASTER_VARIABLES, RankEnvironment

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")

RENDEZVOUS_TIMEOUT = timedelta(minutes=10)
COLLECTIVE_TIMEOUT = timedelta(days=7)  # rank 0 may learn subwords for hours
MESSAGE_DELAY = 1.0  # seconds; a rank that fails prints its message before the others say that it has ended
LOST_CONNECTION = ("closed by peer", "reset by peer", "Broken pipe", "remote process exited")  # gloo and NCCL


@final
class SingleProcess:
    """Training in a single process: the interface of `MultiProcess` without any communication."""

    rank = 0
    world_size = 1

    def device(self, name: str) -> torch.device:
        return resolve_device(name)

    def clock(self) -> float:
        return time.monotonic()

    def sum_over_ranks(self, number: float) -> float:
        return number

    def all_gather(self, value: T) -> list[T]:
        return [value]

    def distributed_map(self, work: Callable[[Item], T], items: Sequence[Item]) -> Iterable[T]:
        return map(work, items)

    def data_parallel(self, module: nn.Module) -> nn.Module:
        return module

    def all_reduce_(self, tensor: Tensor) -> Tensor:
        return tensor

    def on_rank_zero(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        return function(*arguments, **options)

    on_all_ranks = rank_zero_first = on_rank_zero


@final
class MultiProcess:
    """One of several processes, made by `process_group`: gloo for tensors on the CPU, NCCL for those on a GPU.

    Collective methods must be called on all ranks, in the same order.
    """

    def __init__(self, environment: RankEnvironment, group: dist.ProcessGroup) -> None:
        self.rank = environment.rank
        self.world_size = environment.world_size
        self._local_rank = environment.local_rank
        self._group = group
        self._now = 0.0
        self.sum_over_ranks(0)  # sets the clock

    def device(self, name: str) -> torch.device:
        """Return this rank's device for `auto`, `cpu` or `cuda`; raise UserError if the machine lacks it."""
        device = resolve_device(name)
        if device.type == "cpu":
            return device
        count = torch.cuda.device_count()
        if self._local_rank >= count:
            raise UserError(
                f"more processes than GPUs: torch sees {count} on this machine; start one process per GPU, "
                f"--nproc-per-node={count}, or set trainer.device=cpu"
            )
        device = torch.device("cuda", self._local_rank)
        torch.cuda.set_device(device)
        return device

    def clock(self) -> float:
        """Return rank 0's monotonic time in seconds as of the last collective call: equal on all ranks."""
        return self._now

    def data_parallel(self, module: nn.Module) -> nn.Module:
        """Return a module whose backward pass averages gradients over ranks; collective.

        Its parameters and buffers become those of rank 0. A parameter without a gradient on all ranks keeps none.
        """
        # Looking for unused parameters leaves those that no rank uses without a gradient, and keeps the buckets as
        # they are: torch otherwise rearranges them after the first update, so that of three processes or more a
        # resumed run would add its first gradients in another order.
        return DistributedDataParallel(
            module, process_group=self._group, find_unused_parameters=True, gradient_as_bucket_view=True
        )

    def sum_over_ranks(self, number: float) -> float:
        """Return the sum of a number over all ranks; collective."""
        total, self._now = self.all_reduce_(torch.tensor([number, self._time()], dtype=torch.float64)).tolist()
        return total

    @torch.no_grad()
    def all_reduce_(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all ranks and return it; collective."""
        dist.all_reduce(tensor, group=self._group)
        return tensor

    def all_gather(self, value: T) -> list[T]:
        """Return the values of all ranks; collective."""
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self._group)
        return values

    def distributed_map(self, work: Callable[[Item], T], items: Sequence[Item]) -> Iterator[T]:
        """Yield `work(item)` for each item, in order; each rank does its share of the work; collective.

        The ranks process neighboring items at the same time, so these should take about equally long. Every rank must
        consume the iterator, and receives the results of all items.
        """
        for start in range(0, len(items), self.world_size):
            own_items = items[start + self.rank : start + self.rank + 1]
            results = self.on_all_ranks(lambda own_items: [work(each) for each in own_items], own_items)
            yield from itertools.chain.from_iterable(self.all_gather(results))

    def on_rank_zero(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Call a function on rank 0 only; return its value, or raise its error, on all ranks; collective."""
        value, error = attempt(function, *arguments, **options) if self.rank == 0 else (None, None)
        sent: list[Any] = [value, error_for_others(error), self._time()]
        dist.broadcast_object_list(sent, src=0, group=self._group, device=torch.device("cpu"))
        received, received_error, self._now = sent
        raise_first([error, received_error])
        return value if self.rank == 0 else received  # type: ignore[return-value]

    def on_all_ranks(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Call a function on every rank; if it fails on one, raise its error on all; collective."""
        value, error = attempt(function, *arguments, **options)
        gathered = self.all_gather((error_for_others(error), self._time()))
        self._now = gathered[0][1]
        raise_first([error, *(error_elsewhere for error_elsewhere, _ in gathered)])
        return value  # type: ignore[return-value]

    def rank_zero_first(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Call a function on rank 0, then on the others, which find what it stored; collective."""
        values: list[T] = []
        self.on_rank_zero(lambda: values.append(function(*arguments, **options)))
        return self.on_all_ranks(lambda: values[0] if values else function(*arguments, **options))

    def _time(self) -> float:
        return time.monotonic() if self.rank == 0 else 0.0


ProcessGroup = SingleProcess | MultiProcess
SINGLE_PROCESS = SingleProcess()


@contextlib.contextmanager
def process_group(environment: RankEnvironment, device: str) -> Iterator[ProcessGroup]:
    """Initialize torch.distributed for the block, where there are several processes.

    MASTER_ADDR and MASTER_PORT say where ranks meet; `device` (`auto`, `cpu` or `cuda`), where tensors will be.

    Raises:
        UserError: the ranks cannot meet, or another has ended. An error that is not raised on all ranks is noted to be
            of this one.
    """
    if environment.world_size == 1:
        yield SINGLE_PROCESS
        return
    backend = "cpu:gloo,cuda:nccl" if device != "cpu" and torch.cuda.is_available() else "gloo"
    rank, world_size = environment.rank, environment.world_size
    try:
        dist.init_process_group(backend, rank=rank, world_size=world_size, timeout=RENDEZVOUS_TIMEOUT)
    except (ValueError, RuntimeError) as error:  # all errors of torch.distributed are RuntimeErrors
        place = ":".join(os.environ.get(name, "") for name in MASTER_VARIABLES)
        raise UserError(
            f"the {world_size} processes cannot meet at {place}: {one_line(error)}; start all of them, "
            "with an address that all can reach and a port that is free"
        ) from error
    try:
        with errors_of_rank(rank):
            yield MultiProcess(environment, dist.new_group(timeout=COLLECTIVE_TIMEOUT))
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def errors_of_rank(rank: int) -> Iterator[None]:
    """Note that errors of the block are of this rank alone, unless they came through a collective call.

    Raises:
        UserError: the connection to another rank, which must have failed, is lost.
    """
    try:
        yield
    except Exception as error:
        note_rank(error, rank)
        if not is_connection_lost(error):
            raise
        time.sleep(MESSAGE_DELAY)
        ended = UserError("another process has ended; see its message")
        note_rank(ended, rank)
        raise ended from error


def is_connection_lost(error: Exception) -> bool:
    """Return whether an exception of torch.distributed means that another process has ended."""
    said = isinstance(error, RuntimeError) and any(words in str(error) for words in LOST_CONNECTION)
    return said or isinstance(error, dist.DistNetworkError)


def no_sync(module: nn.Module) -> AbstractContextManager[None]:
    """Accumulate gradients locally within the block, for a module that `data_parallel` returned."""
    return module.no_sync() if isinstance(module, DistributedDataParallel) else contextlib.nullcontext()


def seed_rank(seed: int, processes: ProcessGroup) -> None:
    """Seed torch's generators differently on each of several ranks; a single process keeps the state of its own."""
    if processes.world_size > 1:
        torch.manual_seed(int(np.random.SeedSequence((seed, processes.rank)).generate_state(1)[0]))


def random_state(device: torch.device, processes: ProcessGroup) -> dict[str, Any]:
    """Return the states of the CPU's generators, [rank, state], and those of the GPUs', if they train; collective."""
    is_cuda = device.type == "cuda"
    return {
        "random": torch.stack(processes.all_gather(torch.get_rng_state())),
        "cuda_random": processes.all_gather(torch.cuda.get_rng_state(device)) if is_cuda else [],
    }


def restore_random_state(state: dict[str, Any], device: torch.device, processes: ProcessGroup) -> None:
    """Restore this rank's generators from what `random_state` returned."""
    states = state["random"].view(-1, state["random"].shape[-1])
    torch.set_rng_state(states[processes.rank].clone())  # a copy: torch reads from the beginning of its storage
    if device.type == "cuda" and state["cuda_random"]:
        torch.cuda.set_rng_state(state["cuda_random"][processes.rank], device)


def attempt(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> tuple[T | None, Exception | None]:
    """Return what a function returns, or what it raises."""
    try:
        return function(*arguments, **options), None
    except Exception as error:
        return None, error


def error_for_others(error: Exception | None) -> BaseException | None:
    """Return what other ranks raise for an error here: the same UserError; SystemExit for a bug, traced back once."""
    return error if error is None or isinstance(error, UserError) else SystemExit(1)


def raise_first(errors: Iterable[BaseException | None]) -> None:
    """Raise the first error that is not None; a UserError is one that all ranks raise."""
    for error in errors:
        if isinstance(error, UserError):
            error.add_note(ALL_RANKS)
        if error is not None:
            raise error
