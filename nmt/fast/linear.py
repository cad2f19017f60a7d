"""All linear maps that read one vector of a recurrence, as one matrix product a step."""

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.fast.arena import Arena
from nmt.fast.kernels import grad_weight, multiplier

STEP = -3  # the axis of steps; those of rows and sizes follow, that of an encoder's directions may come first


def stacked(weights: Sequence[Tensor]) -> Tensor:
    """Stack matrices on their output axis; a single one is only made contiguous."""
    return weights[0].contiguous() if len(weights) == 1 else torch.cat(list(weights), dim=-2)


@final
class FusedLinear:
    """y_t = [W_1; W_2; ...] x_t, several maps of one vector at once.

    A step of the backward pass only stores the gradient of its outputs; the gradient of the weights is one product
    over all steps and rows at the end. Under autocast the products are in `compute_dtype`; everything else stays in
    the precision of the parameters. Views of the prepared memory are made beforehand for all steps at once: one by
    one they cost as much as small products.
    """

    def __init__(
        self,
        arena: Arena,
        vectors: Float[Tensor, "*direction step row input"],
        weights: Sequence[Float[Tensor, "*direction _ input"]],
        compute_dtype: torch.dtype,
    ) -> None:
        *outer, rows, size = vectors.shape
        directions, steps = outer[:-1], outer[-1]
        self.sizes = [weight.shape[-2] for weight in weights]
        total = sum(self.sizes)
        self.dtype = vectors.dtype
        weight = stacked([weight.to(compute_dtype) for weight in weights])
        self.multiply, self.multiply_back = multiplier(weight), multiplier(weight.mT)
        self.vectors = vectors.unbind(STEP)
        self.casts = compute_dtype != self.dtype
        self.all_inputs = arena.take(*vectors.shape, dtype=compute_dtype) if self.casts else vectors
        self.inputs = self.all_inputs.unbind(STEP)
        self.outputs = arena.take(*directions, rows, total, dtype=compute_dtype)
        self.all_grad_outputs = arena.take(*outer, rows, total, dtype=compute_dtype)
        self.grad_outputs = self.all_grad_outputs.unbind(STEP)
        self.grad_inputs = arena.take(*directions, rows, size, dtype=compute_dtype)
        self.slots: Sequence[tuple[Tensor, ...]]  # of each step: where the gradients of its results are written
        if self.casts:
            self.results = arena.take(*directions, rows, total, dtype=self.dtype)
            self.grad_results = arena.take(*directions, rows, total, dtype=self.dtype)
            self.slots = [self.grad_results.split(self.sizes, dim=-1)] * steps
        else:
            parts = (part.unbind(STEP) for part in self.all_grad_outputs.split(self.sizes, dim=-1))
            self.slots = list(zip(*parts, strict=True))

    def forward(self, step: int) -> tuple[Tensor, ...]:
        """Multiply the vector of a step; the results are valid until the next call."""
        if self.casts:
            self.inputs[step].copy_(self.vectors[step])
        outputs = self.multiply(self.inputs[step], self.outputs)
        results = self.results.copy_(outputs) if self.casts else outputs
        return results.split_with_sizes(self.sizes, dim=-1)  # half the cost of `split`, which is in Python

    def backward(self, step: int) -> Tensor:
        """Return the gradient of the vector of a step, valid until the next call; `slots[step]` is written before."""
        if self.casts:
            self.grad_outputs[step].copy_(self.grad_results)
        return self.multiply_back(self.grad_outputs[step], self.grad_inputs)

    def grad_weights(self) -> tuple[Tensor, ...]:
        """Return the gradients of the weights, when every step has been through `backward`."""
        grad = grad_weight(self.all_grad_outputs.flatten(STEP, -2), self.all_inputs.flatten(STEP, -2))
        return grad.to(self.dtype).split(self.sizes, dim=-2)

    def grad_bias(self) -> Tensor:
        """Return the gradient of a bias added to the results."""
        return self.all_grad_outputs.sum(dim=(STEP, -2), dtype=self.dtype)
