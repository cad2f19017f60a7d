"""Products of a recurrence: the gradient of a matrix that every step multiplies by, as one product over all steps.

Autograd would form that gradient anew at each step, and add it up: two passes over memory of the matrix's size for
every step. Here a step keeps its input and the gradient of its output, a vector a row each.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.fast.kernels import Multiply, backward_pass, grad_weight, prepare_product

FACTOR = "factor"  # attribute of a shared tensor


class Factor(ABC):
    """A matrix M that all steps multiply by, y_t = x_t M, with what its gradient, sum_t x_t^T grad y_t, is made of.

    It holds no reference to autograd's graph, which refers to it: memory in a cycle would wait for the collector.
    """

    def __init__(self, matrix: Tensor, compute_dtype: torch.dtype) -> None:
        self.dtype, self.compute_dtype = matrix.dtype, compute_dtype
        self.matrix = matrix.detach()
        self.inputs: list[Tensor] = []
        self.grads: list[Tensor] = []
        self.backward_pass = -1  # the last one that had a step

    def record(self, x: Tensor, grad: Tensor) -> None:
        """Keep a row for `total_grad`; those of an earlier backward pass, which did not ask for it, are dropped."""
        if self.backward_pass != backward_pass():
            self.inputs, self.grads, self.backward_pass = [], [], backward_pass()
        self.inputs.append(x)
        self.grads.append(grad)

    @abstractmethod
    def multiply(self, x: Float[Tensor, "*row input"]) -> Float[Tensor, "*row output"]:
        """Return x M."""

    @abstractmethod
    def multiply_back(self, grad: Float[Tensor, "*row output"]) -> Float[Tensor, "*row input"]:
        """Return grad M^T."""

    @abstractmethod
    def gradient(self, inputs: Float[Tensor, "*row input"], grads: Float[Tensor, "*row output"]) -> Tensor:
        """Return the gradient of the shared tensor, given the rows of all steps."""

    def total_grad(self) -> Tensor | None:
        """Return the gradient of the shared tensor over all steps of this backward pass; None if there were none."""
        if not self.inputs or self.backward_pass != backward_pass():
            return None
        inputs, grads = torch.cat(self.inputs, dim=-2), torch.cat(self.grads, dim=-2)
        self.inputs.clear()
        self.grads.clear()
        return self.gradient(inputs, grads).to(self.dtype)


@final
class Weight(Factor):
    """The weight W of a linear map, M = W^T; several directions, if any, are an axis before those of the matrix."""

    @cached_property
    def forward_product(self) -> Multiply:
        """Multiplies by M, whose layout is prepared once for all steps."""
        return prepare_product(self.matrix.to(self.compute_dtype))

    @cached_property
    def backward_product(self) -> Multiply:
        """Multiplies by M^T."""
        return prepare_product(self.matrix.to(self.compute_dtype).mT)

    def multiply(self, x: Tensor) -> Tensor:
        return self.forward_product(self.rows(x)).view(*x.shape[:-1], -1)

    def multiply_back(self, grad: Tensor) -> Tensor:
        return self.backward_product(self.rows(grad)).view(*grad.shape[:-1], -1)

    def gradient(self, inputs: Tensor, grads: Tensor) -> Tensor:
        return grad_weight(self.rows(grads), self.rows(inputs)).contiguous()

    def rows(self, x: Tensor) -> Tensor:
        """Join all axes but the last and that of the directions, if there is one."""
        return x.flatten(self.matrix.dim() - 2, -2)


@final
class PerSentence(Factor):
    """A matrix for every sentence of a batch: the states that a step's weights average, keys that it is compared with.

    It is given transposed where the steps multiply by the transpose of the shared tensor.
    """

    def __init__(self, matrix: Float[Tensor, "batch source size"], *, transposed: bool) -> None:
        super().__init__(matrix, matrix.dtype)
        self.transposed = transposed

    def multiply(self, x: Tensor) -> Tensor:
        return torch.bmm(x, self.matrix.mT if self.transposed else self.matrix)

    def multiply_back(self, grad: Tensor) -> Tensor:
        return torch.bmm(grad, self.matrix if self.transposed else self.matrix.mT)

    def gradient(self, inputs: Tensor, grads: Tensor) -> Tensor:
        return torch.bmm(grads.mT, inputs) if self.transposed else torch.bmm(inputs.mT, grads)


def share(tensor: Tensor, factor: Any) -> Tensor:
    """Mark a tensor as shared by all steps: its gradient is `factor.total_grad()`, taken when all are done.

    Operations other than `multiply` on it are differentiated by autograd as usual.
    """
    shared: Tensor = Shared.apply(tensor, factor)  # type: ignore[no-untyped-call]
    setattr(shared, FACTOR, factor)
    return shared


def factor_of(tensor: Tensor) -> Any:
    """Return the factor of a shared tensor; None for any other."""
    return vars(tensor).get(FACTOR)


def multiply(x: Float[Tensor, "*row input"], shared: Tensor) -> Float[Tensor, "*row output"]:
    """Return x M, M being the matrix of a shared tensor's factor."""
    return Product.apply(x, shared, factor_of(shared))  # type: ignore[no-untyped-call]


@final
class Shared(torch.autograd.Function):
    """The identity; the gradient is the factor's and what autograd has added up."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, factor: Any) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.factor = factor
        return tensor.view_as(tensor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, None]:
        total = ctx.factor.total_grad()
        return (total if grad is None else grad if total is None else total + grad), None


@final
class Product(torch.autograd.Function):
    """y = x M of one step."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shared: Tensor, factor: Factor) -> Tensor:
        ctx.factor, ctx.dtype = factor, x.dtype
        x = x.to(factor.compute_dtype)
        ctx.save_for_backward(x, shared)  # the factor reads it where it is: autograd notices if it changes
        return factor.multiply(x).to(factor.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:
        factor, (x, _) = ctx.factor, ctx.saved_tensors
        grad = grad.to(factor.compute_dtype)
        if ctx.needs_input_grad[1]:
            factor.record(x, grad)
        return factor.multiply_back(grad).to(ctx.dtype) if ctx.needs_input_grad[0] else None, None, None
