"""A function of tensors on a GPU, recorded once for each of their shapes as CUDA graphs, and replayed.

A step of a recurrence is dozens of small kernels, and a GPU computes each in less time than a CPU takes to launch it.
A replay launches all kernels of all steps, forward or backward, at once.
"""

import gc
import logging
import warnings
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast, final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Tensors = tuple[Tensor, ...]
Function = Callable[..., Tensors]

SHARE_OF_MEMORY = 0.25  # of the GPU, for the arguments and results of recordings

logger = logging.getLogger(__name__)


@final
class Recorder:
    """Recordings of one function, whose arguments are tensors, by shape; for a single thread.

    All use the same memory for what a forward pass keeps, so only one may be between its forward and backward pass:
    meanwhile the function itself is called.
    """

    def __init__(self) -> None:
        self.recordings: dict[tuple[Any, ...], Function | None] = {}
        self.size = 0  # in bytes, of arguments and results of recordings
        self.pool: Any = None
        self.user: Callable[[], Any] = lambda: None  # a reference to the forward pass whose backward pass is to come

    def __reduce__(self) -> tuple[Any, ...]:
        return Recorder, ()  # a copy has no recordings: those are of other memory

    def call(self, function: Function, arguments: Sequence[Tensor], *settings: Hashable) -> Tensors:
        """Return `function(*arguments)`; it is recorded when arguments have these shapes for the first time.

        `settings` are whatever else the function depends on.
        """
        if self.user() is not None:
            return function(*arguments)
        key = (*settings, *((each.shape, each.dtype, each.requires_grad) for each in arguments))
        if key not in self.recordings:
            self.recordings[key] = self.record(function, arguments)
        recording = self.recordings[key]
        if recording is None:
            return function(*arguments)
        borrowed: Tensors = Borrowed.apply(self, *arguments)  # type: ignore[no-untyped-call]
        return recording(*borrowed)

    def record(self, function: Function, arguments: Sequence[Tensor]) -> Function | None:
        """Record the function; return None where that takes too much memory, or the function waits for the GPU."""
        device = arguments[0].device
        if self.size > SHARE_OF_MEMORY * torch.cuda.get_device_properties(device).total_memory:
            return None
        # Parameters stay where they are; other arguments are copied to the recording's.
        own = [each.detach() if isinstance(each, nn.Parameter) else each.detach().clone() for each in arguments]
        own = [copy.requires_grad_(each.requires_grad) for copy, each in zip(own, arguments, strict=True)]
        self.pool = self.pool or torch.cuda.graph_pool_handle()
        try:
            with undisturbed(device):
                recording: Any = torch.cuda.make_graphed_callables(
                    function, tuple(own), num_warmup_iters=1, allow_unused_input=True, pool=self.pool
                )
        except RuntimeError as error:
            self.pool = None  # what was begun in it is not finished
            if isinstance(error, torch.OutOfMemoryError):
                raise
            logger.warning("a recurrence cannot be recorded as a CUDA graph and is computed step by step: %s", error)
            return None
        copied = (each for each in arguments if not isinstance(each, nn.Parameter))
        self.size += 4 * sum(each.nbytes for each in copied)  # with gradients, and results of about their size
        return cast(Function, recording)


@contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """Leave the random numbers as they are, as a resumed run records anew what another has recorded long before; and
    keep Python's collector from freeing other recordings, which ends one that is being made.
    """
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        with torch.random.fork_rng([device]), warnings.catch_warnings():
            # The passes before and during the recording are on streams of their own, one after the other.
            warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream does not match")
            yield
    finally:
        if is_collecting:
            gc.enable()


@final
class Borrowed(torch.autograd.Function):
    """The identity of a recording's arguments; the recording is in use until this has been differentiated, or freed.

    Gradients are copied: they are in memory that the next replay overwrites.
    """

    @staticmethod
    def forward(ctx: Any, recorder: Recorder, *arguments: Tensor) -> Tensors:
        ctx.set_materialize_grads(False)
        ctx.recorder = recorder
        recorder.user = weakref.ref(ctx)
        return tuple(each.view_as(each) for each in arguments)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if ctx.recorder.user() is ctx:
            ctx.recorder.user = lambda: None
        return None, *(None if grad is None else grad.clone() for grad in grads)
