"""All linear maps that read one vector of the recurrence, as one matrix product a step."""

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.fast.arena import Arena
from nmt.fast.linear import product

STEP = -3  # the axis of steps: those of rows and sizes follow, that of an encoder's directions may come first


def joined(weights: Sequence[Tensor]) -> Tensor:
    """Put matrices below each other. One by itself is returned as it is, or copied if it does not lie together."""
    return weights[0].contiguous() if len(weights) == 1 else torch.cat(list(weights), dim=-2)


@final
class Readers:
    """y_t = [W_1; W_2; ...] x_t, several maps of one vector at once.

    Each step only notes the gradient of its outputs; the gradient of the weights is one product over all steps and
    rows when the chain has been run through backwards. Under autocast the products, and what is noted for them, are
    in its type; everything else stays in the precision of the parameters. Here as in all of this package views of
    prepared memory are made beforehand, for all steps at once: one by one they cost as much as small products.
    """

    def __init__(
        self,
        arena: Arena,
        vectors: Float[Tensor, "*direction step row input"],
        weights: Sequence[Float[Tensor, "*direction _ input"]],
        kind: torch.dtype,
    ) -> None:
        *outer, rows, size = vectors.shape
        directions, steps = outer[:-1], outer[-1]
        self.sizes = [weight.shape[-2] for weight in weights]
        total = sum(self.sizes)
        self.dtype = vectors.dtype
        weight = joined([weight.to(kind) for weight in weights])
        self.multiply, self.multiply_back = product(weight), product(weight.mT)
        self.vectors = vectors.unbind(STEP)
        self.same = kind == self.dtype
        self.all_inputs = vectors if self.same else arena.take(*vectors.shape, dtype=kind)
        self.inputs = self.all_inputs.unbind(STEP)
        self.outputs = arena.take(*directions, rows, total, dtype=kind)
        self.results = self.outputs if self.same else arena.take(*directions, rows, total, dtype=self.dtype)
        self.all_by_outputs = arena.take(*outer, rows, total, dtype=kind)
        self.by_outputs = self.all_by_outputs.unbind(STEP)
        self.by_inputs = arena.take(*directions, rows, size, dtype=kind)
        self.by_results: Tensor | None = None
        if self.same:
            slots = (part.unbind(STEP) for part in self.all_by_outputs.split(self.sizes, dim=-1))
            self.slots = list(zip(*slots, strict=True))
        else:
            self.by_results = arena.take(*directions, rows, total, dtype=self.dtype)
            self.slots = [self.by_results.split(self.sizes, dim=-1)] * steps

    def forward(self, step: int) -> tuple[Tensor, ...]:
        """Read the vector of a step; the results live until the next call."""
        if not self.same:
            self.inputs[step].copy_(self.vectors[step])
        outputs = self.multiply(self.inputs[step], self.outputs)
        results = outputs if self.same else self.results.copy_(outputs)
        return results.split_with_sizes(self.sizes, dim=-1)  # half the cost of `split`, which is in Python

    def backward(self, step: int) -> Tensor:
        """Return the gradient of the vector of a step, which lives until the next call.

        Those of the step's results, map by map, are to be written to `slots[step]` before.
        """
        if self.by_results is not None:
            self.by_outputs[step].copy_(self.by_results)
        return self.multiply_back(self.by_outputs[step], self.by_inputs)

    def gradients(self) -> tuple[Tensor, ...]:
        """Return the gradients of the weights, when every step has been through `backward`."""
        by_weight = self.all_by_outputs.flatten(STEP, -2).mT @ self.all_inputs.flatten(STEP, -2)
        return by_weight.to(self.dtype).split(self.sizes, dim=-2)
