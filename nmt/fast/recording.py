"""Chains recorded once a shape and run again and again: on a GPU, launching costs more than computing.

A step of the recurrence is some fifteen small kernels, and a GPU is done with each before the program has asked for
the next. A recording asks for those of all steps at once. It runs on memory that stays where it is, so what it is
given is copied there, padded to one of a few shapes.
"""

import weakref
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar, final, runtime_checkable

import torch
from torch import Tensor

from nmt.attention.attention import Memory
from nmt.fast.arena import Arena
from nmt.fast.attention import closed_form
from nmt.fast.chains import Chain, Emitted, Given, Task
from nmt.fast.execution import Eager, Execution, Gradients, Maker, gradients_of
from nmt.fast.graphs import GraphRecorder

T = TypeVar("T")
LIMIT = 64  # recordings of a decoder: batches of Multi30k, by sentences or by tokens, come in about 60 shapes


@runtime_checkable
class Recorder(Protocol):
    """Records the work of a device."""

    def __call__(self, work: Callable[[], T]) -> tuple[T, Callable[[], None]]:
        """Return the work's result, and what does the work again, into the same result; run it first."""


RECORDERS: dict[str, Callable[[torch.device], Recorder]] = {"cuda": GraphRecorder}  # of those devices that need it


class Shape(NamedTuple):
    """The lengths of what a chain is run on."""

    steps: int
    rows: int
    length: int

    @classmethod
    def of(cls, given: Given) -> "Shape":
        """Return the shape of what is given."""
        steps, rows, _ = given.gates.shape
        return cls(steps, rows, given.memory.values.shape[1])

    def rounded(self) -> "Shape":
        """Return a shape at least as large, of which there are few; each length grows by up to a quarter."""
        return Shape(round_up(self.steps, 2), round_up(self.rows, 8), round_up(self.length, 2))


def round_up(number: int, least: int) -> int:
    """Round up to a multiple of `least`, or of a quarter of the greatest power of 2 within the number."""
    unit = max(least, (1 << (number.bit_length() - 1)) // 4)
    return -(-number // unit) * unit


@final
class Recording:
    """A chain of one shape, its run forwards and its run back recorded, and the memory these read and write."""

    def __init__(self, record: Recorder, maker: Maker, like: Given, shape: Shape) -> None:
        steps, rows, length = shape
        keys, values, mask = like.memory
        self.given = Given(
            like.gates.new_zeros(steps, rows, like.gates.shape[2]),
            Memory(
                keys.new_zeros(rows, length, keys.shape[2]),
                values.new_zeros(rows, length, values.shape[2]),
                mask.new_ones(rows, length),
            ),
            [state.new_zeros(rows, state.shape[1]) for state in like.initial],
            like.kind,
        )
        chains: list[Chain] = []

        def forwards() -> tuple[Tensor, Tensor, Tensor]:
            chains.append(maker.chain(Task(Arena(like.gates.device), self.given)))
            return chains[-1].run()

        self.emitted, self.run = record(forwards)
        self.by_emitted = Emitted(*(torch.zeros_like(each) for each in self.emitted))
        self.gradients, self.run_back = record(lambda: gradients_of(chains[-1], self.by_emitted))

    def fill(self, given: Given) -> None:
        """Copy in what is given. Rows of padding may look anywhere: their weights must be numbers, if unread."""
        rows = len(given.memory.mask)
        copy_into(self.given.gates, given.gates)
        copy_into(self.given.memory.keys, given.memory.keys)
        copy_into(self.given.memory.values, given.memory.values)
        copy_into(self.given.memory.mask, given.memory.mask)
        self.given.memory.mask[rows:] = True
        for place, state in zip(self.given.initial, given.initial, strict=True):
            copy_into(place, state)


def copy_into(place: Tensor, real: Tensor) -> None:
    """Copy to the beginning of every axis, zeros behind it."""
    if place.shape != real.shape:
        place.zero_()
    place[tuple(slice(size) for size in real.shape)].copy_(real)


@final
class Replay(Execution):
    """A recording, on what is given."""

    def __init__(self, recording: Recording, given: Given) -> None:
        self.recording = recording
        self.shape = Shape.of(given)
        recording.fill(given)

    def run(self) -> tuple[Tensor, Tensor, Tensor]:
        steps, rows, length = self.shape
        self.recording.run()
        hidden, contexts, weights = self.recording.emitted
        return (
            hidden[:steps, :rows].clone(),
            contexts[:steps, :rows].clone(),
            weights[:steps, :rows, :length].clone(),
        )

    def run_back(self, by_emitted: Emitted) -> Gradients:
        steps, rows, length = self.shape
        for place, real in zip(self.recording.by_emitted, by_emitted, strict=True):
            assert place is not None
            if real is None:
                place.zero_()
            else:
                copy_into(place, real)
        self.recording.run_back()
        found = self.recording.gradients
        return Gradients(
            found.gates[:steps, :rows],
            found.keys[:rows, :length],
            found.values[:rows, :length],
            tuple(state[:rows].clone() for state in found.states),
            {parameter: gradient.clone() for parameter, gradient in found.parameters.items()},
        )

    def close(self) -> None:
        """The memory is free when this object is: see `Recordings`."""


@final
class Recordings:
    """The recordings of a decoder on a device; one at a time may be under way, as they share memory."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.recordings: dict[object, Recording | None] = {}  # None: of a shape that has come once
        self.under_way: Callable[[], Replay | None] = lambda: None

    def choose(self, maker: Maker, given: Given) -> Execution:
        """Choose how to run a chain: by a recording if there is one or it is time to make one."""
        recording = None if self.under_way() is not None else self._find(maker, given)
        if recording is None:
            return Eager(maker, given)
        replay = Replay(recording, given)
        self.under_way = weakref.ref(replay)
        return replay

    def _find(self, maker: Maker, given: Given) -> Recording | None:
        shape = Shape.of(given).rounded()
        dtypes = (given.kind, *(state.dtype for state in given.initial))
        parameters = tuple((id(each), each.data_ptr()) for each in maker.parameters())  # read where they were
        key = (shape, dtypes, maker.training, parameters)
        if key not in self.recordings:
            if len(self.recordings) < LIMIT:
                self.recordings[key] = None
            return None
        if self.recordings[key] is None:
            try:
                self.recordings[key] = Recording(self.recorder, maker, given, shape)
            except RuntimeError as error:
                # What is left of it would disturb whatever runs next.
                raise RuntimeError(
                    f"cannot record the decoder's recurrence (model.fast=off does without): {error}"
                ) from error
        return self.recordings[key]


OF_DECODERS: weakref.WeakKeyDictionary[Maker, dict[torch.device, Recordings]] = weakref.WeakKeyDictionary()


def execution(maker: Maker, given: Given) -> Execution:
    """Choose how to run a chain: what is quickest on its device.

    Autograd within a recording would wait for the stream that the parameters are known to be used on, which is not
    the recording's: an attention that needs it is run without.
    """
    device = given.gates.device
    if device.type not in RECORDERS or closed_form(maker.attention) is None:
        return Eager(maker, given)
    of_devices = OF_DECODERS.setdefault(maker, {})
    if device not in of_devices:
        of_devices[device] = Recordings(RECORDERS[device.type](device))
    return of_devices[device].choose(maker, given)
