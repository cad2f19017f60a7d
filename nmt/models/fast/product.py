"""All linear maps that read one vector of the recurrence, as one matrix product a step."""

from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.models.fast.arena import Arena
from nmt.models.fast.linear import affine


@final
class Readers:
    """y_t = [W_1; W_2; ...] x_t, several maps of one vector at once.

    Each step only notes the gradient of its outputs; the gradient of the weights is one product over all steps and
    rows when the chain has been run through backwards. Under autocast the products, and what is noted for them, are
    in its type; everything else stays in the precision of the parameters.
    """

    def __init__(
        self, arena: Arena, vectors: Float[Tensor, "step row input"], weights: Sequence[Tensor], kind: torch.dtype
    ) -> None:
        steps, rows, size = vectors.shape
        self.sizes = [len(weight) for weight in weights]
        total = sum(self.sizes)
        self.dtype = vectors.dtype
        self.weight = torch.cat([weight.to(kind) for weight in weights])
        self.vectors = vectors
        self.same = kind == vectors.dtype
        self.inputs = vectors if self.same else arena.take(steps, rows, size, dtype=kind)
        self.outputs = arena.take(rows, total, dtype=kind)
        self.results = self.outputs if self.same else arena.take(rows, total, dtype=self.dtype)
        self.by_outputs = arena.take(steps, rows, total, dtype=kind)
        self.by_results = None if self.same else arena.take(rows, total, dtype=self.dtype)
        self.by_inputs = arena.take(rows, size, dtype=kind)

    def forward(self, step: int) -> tuple[Tensor, ...]:
        """Read the vector of a step; the results live until the next call."""
        if not self.same:
            self.inputs[step].copy_(self.vectors[step])
        outputs = affine(self.inputs[step], self.weight, out=self.outputs)
        results = outputs if self.same else self.results.copy_(outputs)
        return results.split(self.sizes, dim=1)

    def slots(self, step: int) -> tuple[Tensor, ...]:
        """Return where to write the gradients of a step's results, before `backward`."""
        whole = self.by_outputs[step] if self.by_results is None else self.by_results
        return whole.split(self.sizes, dim=1)

    def backward(self, step: int) -> Tensor:
        """Return the gradient of the vector of a step, which lives until the next call."""
        if self.by_results is not None:
            self.by_outputs[step].copy_(self.by_results)
        return affine(self.by_outputs[step], self.weight.t(), out=self.by_inputs)

    def gradients(self) -> tuple[Tensor, ...]:
        """Return the gradients of the weights, when every step has been through `backward`."""
        by_weight = self.by_outputs.flatten(0, 1).t() @ self.inputs.flatten(0, 1)
        return by_weight.to(self.dtype).split(self.sizes)
