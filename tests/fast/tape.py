"""A recorder for the CPU that has the rules of a CUDA graph: the same operations, on the same memory, without Python.

What a recorded function computes in Python is not computed again, and what it reads of a tensor into Python cannot
be read at all; both would be mistakes on a GPU, where no test without one could find them.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

T = TypeVar("T")

ATEN = torch.ops.aten
WAITS = {  # a GPU's answer, or the copy of a number to it, is waited for
    ATEN._local_scalar_dense.default,
    ATEN.nonzero.default,
    ATEN.masked_select.default,
    ATEN.is_nonzero.default,
    ATEN.equal.default,
    ATEN.lift_fresh.default,
}


class Tape(TorchDispatchMode):
    """Notes every operation."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[tuple[Any, tuple, dict, Any]] = []

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        assert operation not in WAITS, f"{operation} cannot be recorded: it waits for the device"
        if operation is ATEN.index.Tensor:
            assert all(index is None or index.dtype == torch.long for index in arguments[1]), "a mask is waited for"
        result = operation(*arguments, **(options or {}))
        self.notes.append((operation, arguments, options or {}, result))
        return result


def record(work: Callable[[], T]) -> tuple[T, Callable[[], None]]:
    """Run the work; return its result, and what does its operations again, into the same memory."""
    with Tape() as tape:
        result = work()

    def replay() -> None:
        with torch.no_grad():
            for operation, arguments, options, before in tape.notes:
                again = operation(*arguments, **options)
                for place, value in zip(tree_leaves(before), tree_leaves(again), strict=True):
                    if isinstance(place, torch.Tensor) and place.data_ptr() != value.data_ptr():
                        place.copy_(value)

    return result, replay
