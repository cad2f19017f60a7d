"""Scratch memory of the fast path, kept from update to update.

Batches differ in shape, so a training loop that asks the system for its buffers asks for ever new sizes: the heap
fragments and fresh pages have to be cleared. An arena hands out slices of one block that only grows.
"""

import math
from collections import defaultdict
from typing import ClassVar, final

import torch
from torch import Tensor

ALIGNMENT = 64  # bytes: a cache line, and the width of the widest vector registers


@final
class Arena:
    """A block of memory that is handed out slice by slice and taken back all at once."""

    _free: ClassVar[defaultdict[torch.device, list["Arena"]]] = defaultdict(list)

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.block = torch.empty(0, dtype=torch.uint8, device=device)
        self.used = 0

    @classmethod
    def borrow(cls, device: torch.device) -> "Arena":
        """Return an arena nobody uses; one that is never returned is simply freed with its last tensor."""
        try:  # not asked first whether there is one: another thread might take it
            return cls._free[device].pop()
        except IndexError:
            return cls(device)

    def give_back(self) -> None:
        """Let others overwrite all that was handed out; if the block was too small, the next is twice what was used.

        What is beyond the block is taken from the heap and leaves holes there, so it should happen a few times only.
        On a CPU, memory that is never written to takes no room.
        """
        if self.used > len(self.block):
            self.block = torch.empty(2 * self.used, dtype=torch.uint8, device=self.device)
        self.used = 0
        self._free[self.device].append(self)

    def take(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """Return an uninitialized tensor."""
        size = math.prod(shape) * dtype.itemsize
        start, self.used = self.used, self.used + -(-size // ALIGNMENT) * ALIGNMENT
        if self.used > len(self.block):
            return torch.empty(shape, dtype=dtype, device=self.device)
        return self.block[start : start + size].view(dtype).view(shape)
