"""Layers of recurrent cells, one above the other, step by step."""

from collections.abc import Iterator, Mapping, Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.fast.arena import Arena
from nmt.fast.cells import STEPS, CellSteps, Gradient, Recurrent
from nmt.fast.product import STEP, Readers
from nmt.models.cells import Cell
from nmt.models.dropout import keep_mask
from nmt.models.stack import Stack


def state_buffer(
    arena: Arena, initial: Float[Tensor, "*direction row state"], steps: int
) -> tuple[Float[Tensor, "*direction step row state"], Float[Tensor, "*direction step row state"]]:
    """Return memory for the states before and after every step, which overlap; the first before is filled in."""
    *directions, rows, size = initial.shape
    states = arena.take(*directions, steps + 1, rows, size, dtype=initial.dtype)
    states.select(STEP, 0).copy_(initial)
    return states.narrow(STEP, 0, steps), states.narrow(STEP, 1, steps)


@final
class StackSteps:
    """Each layer reads the hidden vector of the one below, through dropout; `read` and `update` as a cell's."""

    def __init__(
        self,
        arena: Arena,
        stack: Stack,
        pairs: Sequence[tuple[Tensor, Tensor]],
        kind: torch.dtype,
        others: Mapping[int, Sequence[Tensor]],
    ) -> None:
        """`pairs` are each layer's states before and after every step; `others` are maps that read a layer's before."""
        self.layers: list[CellSteps] = []
        self.below: list[Upward] = []
        dropout = stack.dropout.p if stack.training else 0.0
        for index, (cell, (before, after)) in enumerate(zip(stack.cells, pairs, strict=True)):
            if index:
                lower = self.layers[-1]
                self.below.append(Upward(arena, cell, lower.all_hidden, dropout, kind))
            self.layers.append(STEPS[type(cell)](arena, Recurrent.of(cell), before, after, kind, others.get(index, ())))

    @property
    def hidden(self) -> Float[Tensor, "step row hidden"]:
        """The hidden vectors of the topmost layer after every step."""
        return self.layers[-1].all_hidden

    def top(self, states: Float[Tensor, "row state"]) -> Float[Tensor, "row hidden"]:
        """Return the part of the topmost layer's state, or of its gradient, that others see."""
        return states[:, : self.layers[-1].size]

    def read(self, step: int) -> tuple[Tensor, ...]:
        """Multiply the layers' states with all that reads them; return the others' results."""
        return tuple(result for layer in self.layers for result in layer.read(step))

    def update(self, step: int, gates: Float[Tensor, "row gates"]) -> None:
        """Update every layer; `gates` is the inputs' share of the first layer's gates."""
        self.layers[0].update(step, gates)
        for upward, layer in zip(self.below, self.layers[1:], strict=True):
            layer.update(step, upward.forward(step))

    def backward_update(self, step: int, by_states: Sequence[Tensor], by_gates: Tensor) -> None:
        """The backward of `update`, turning the gradients of the states after into those before, in place."""
        for index in range(len(self.layers) - 1, 0, -1):
            upward, lower = self.below[index - 1], self.layers[index - 1]
            self.layers[index].backward_update(step, by_states[index], upward.readers.slots[step][0])
            by_states[index - 1][:, : lower.size].add_(upward.backward(step))
        self.layers[0].backward_update(step, by_states[0], by_gates)

    def backward_read(self, step: int, by_states: Sequence[Tensor], by_others: Mapping[int, Sequence[Tensor]]) -> None:
        """The backward of `read`, adding to the gradients of the states before."""
        for index, (layer, by_state) in enumerate(zip(self.layers, by_states, strict=True)):
            layer.backward_read(step, by_state, *by_others.get(index, ()))

    def gradients(self) -> Iterator[Gradient]:
        """Yield the gradients of all parameters but those of the first layer's inputs."""
        for layer in self.layers:
            yield from layer.gradients()
        for upward in self.below:
            yield from upward.gradients()


@final
class Upward:
    """From a layer's hidden vectors to the gates of the next, with dropout on the way."""

    def __init__(
        self, arena: Arena, cell: Cell, hidden: Float[Tensor, "step row hidden"], dropout: float, kind: torch.dtype
    ) -> None:
        self.inputs = cell.inputs
        self.hidden = hidden.unbind(STEP)
        self.masks: Sequence[Tensor] = ()
        vectors = hidden
        if dropout:
            self.masks = keep_mask(hidden, dropout).unbind(STEP)
            vectors = arena.take(*hidden.shape, dtype=hidden.dtype)
        self.readers = Readers(arena, vectors, [self.inputs.weight], kind)

    def forward(self, step: int) -> Tensor:
        if self.masks:
            torch.mul(self.hidden[step], self.masks[step], out=self.readers.vectors[step])
        (gates,) = self.readers.forward(step)
        return gates.add_(self.inputs.bias)

    def backward(self, step: int) -> Tensor:
        by_vector = self.readers.backward(step)
        return by_vector * self.masks[step] if self.masks else by_vector

    def gradients(self) -> Iterator[Gradient]:
        yield self.inputs.weight, self.readers.gradients()[0]
        yield self.inputs.bias, self.readers.all_by_outputs.sum(dim=(0, 1), dtype=self.inputs.bias.dtype)
