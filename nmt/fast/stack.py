"""Layers of recurrent cells, one above the other, step by step."""

from collections.abc import Iterator, Mapping, Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.fast.arena import Arena
from nmt.fast.cells import STEPS, CellSteps, ParameterGrad, Recurrent
from nmt.fast.dropout import keep_mask
from nmt.fast.linear import STEP, FusedLinear
from nmt.models.layers import Cell, Stack


@final
class StackSteps:
    """Each layer reads the hidden vector of the one below, through dropout; `read` and `update` as a cell's."""

    def __init__(
        self,
        arena: Arena,
        stack: Stack,
        states: Sequence[tuple[Tensor, Tensor]],
        compute_dtype: torch.dtype,
        others: Mapping[int, Sequence[Tensor]],
    ) -> None:
        """`states` are each layer's before and after every step; `others` are maps that read a layer's before."""
        self.layers: list[CellSteps] = []
        self.between: list[BetweenLayers] = []
        dropout = stack.dropout.p if stack.training else 0.0
        for index, (cell, (before, after)) in enumerate(zip(stack.cells, states, strict=True)):
            if index:
                hidden = self.layers[-1].all_hidden
                self.between.append(BetweenLayers(arena, cell, hidden, dropout, compute_dtype))
            maps = others.get(index, ())
            self.layers.append(STEPS[type(cell)](arena, Recurrent.of(cell), before, after, compute_dtype, maps))

    @property
    def hidden(self) -> Float[Tensor, "step row hidden"]:
        """The hidden vectors of the topmost layer after every step."""
        return self.layers[-1].all_hidden

    def top(self, state: Float[Tensor, "row state"]) -> Float[Tensor, "row hidden"]:
        """Return the hidden vector within the topmost layer's state, or its gradient."""
        return state[:, : self.layers[-1].size]

    def read(self, step: int) -> tuple[Tensor, ...]:
        """Multiply the layers' states with all that reads them; return the others' results."""
        return tuple(result for layer in self.layers for result in layer.read(step))

    def update(self, step: int, gates: Float[Tensor, "row gates"]) -> None:
        """Update every layer; `gates` is the inputs' share of the first layer's gates."""
        self.layers[0].update(step, gates)
        for between, layer in zip(self.between, self.layers[1:], strict=True):
            layer.update(step, between.forward(step))

    def backward_update(self, step: int, grad_states: Sequence[Tensor], grad_gates: Tensor) -> None:
        """The backward of `update`, turning the gradients of the states after into those before, in place."""
        for index in range(len(self.layers) - 1, 0, -1):
            between, lower = self.between[index - 1], self.layers[index - 1]
            self.layers[index].backward_update(step, grad_states[index], between.maps.slots[step][0])
            grad_states[index - 1][:, : lower.size].add_(between.backward(step))
        self.layers[0].backward_update(step, grad_states[0], grad_gates)

    def backward_read(
        self, step: int, grad_states: Sequence[Tensor], grad_others: Mapping[int, Sequence[Tensor]]
    ) -> None:
        """The backward of `read`, adding to the gradients of the states before."""
        for index, (layer, grad_state) in enumerate(zip(self.layers, grad_states, strict=True)):
            layer.backward_read(step, grad_state, *grad_others.get(index, ()))

    def grads(self) -> Iterator[ParameterGrad]:
        """Yield the gradients of all parameters but those of the first layer's inputs."""
        for layer in self.layers:
            yield from layer.grads()
        for between in self.between:
            yield from between.grads()


@final
class BetweenLayers:
    """From a layer's hidden vectors to the gates of the next, with dropout on the way."""

    def __init__(
        self,
        arena: Arena,
        cell: Cell,
        hidden: Float[Tensor, "step row hidden"],
        dropout: float,
        compute_dtype: torch.dtype,
    ) -> None:
        self.inputs = cell.inputs
        self.hidden = hidden.unbind(STEP)
        self.masks = keep_mask(hidden, dropout).unbind(STEP) if dropout else ()
        vectors = arena.take(*hidden.shape, dtype=hidden.dtype) if dropout else hidden
        self.maps = FusedLinear(arena, vectors, [self.inputs.weight], compute_dtype)

    def forward(self, step: int) -> Tensor:
        if self.masks:
            torch.mul(self.hidden[step], self.masks[step], out=self.maps.vectors[step])
        (gates,) = self.maps.forward(step)
        return gates.add_(self.inputs.bias)

    def backward(self, step: int) -> Tensor:
        grad = self.maps.backward(step)
        return grad * self.masks[step] if self.masks else grad

    def grads(self) -> Iterator[ParameterGrad]:
        yield self.inputs.weight, self.maps.grad_weights()[0]
        yield self.inputs.bias, self.maps.grad_bias()
