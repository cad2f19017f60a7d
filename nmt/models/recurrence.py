"""Linear maps inside a recurrence, with the gradient of their weights formed once for all steps.

Autograd would multiply a [gates, rows] by a [rows, size] matrix at every step and add the products up: many small
products and as many passes over a gradient as large as the weight. Here each step only notes its two factors; when
the backward pass has gone through all the steps, one product over steps x rows gives the gradient. The arithmetic is
the same, a sum in another order.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Ledger = list[tuple[Tensor, Tensor]]  # the inputs of each step, and the gradients of its outputs


@final
class StepLinear(nn.Linear):
    """y = W x + b, like `nn.Linear` in every value and gradient; within `unrolled`, made for being called often."""

    shared: tuple[Tensor, Tensor | None, Ledger] | None = None

    def forward(self, inputs: Float[Tensor, "*batch input"]) -> Float[Tensor, "*batch output"]:
        if self.shared is None:
            return super().forward(inputs)
        product: Tensor = StepProduct.apply(inputs, *self.shared)  # type: ignore[no-untyped-call]
        return product


@contextlib.contextmanager
def unrolled(module: nn.Module) -> Iterator[None]:
    """Within this context, all calls of a `StepLinear` of `module` are steps of one recurrence."""
    maps = [part for part in module.modules() if isinstance(part, StepLinear)] if torch.is_grad_enabled() else []
    for part in maps:
        ledger: Ledger = []
        part.shared = (*SharedWeight.apply(part.weight, part.bias, ledger), ledger)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for part in maps:
            part.shared = None


class SharedWeight(torch.autograd.Function):
    """The weight and bias that all steps use, in the type that autocast multiplies in."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, ledger: Ledger) -> tuple[Tensor, Tensor | None]:
        ctx.set_materialize_grads(False)
        ctx.ledger = ledger
        ctx.has_bias = bias is not None
        ctx.dtype = weight.dtype
        return autocast(weight), None if bias is None else autocast(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: None) -> tuple[Tensor | None, Tensor | None, None]:
        """Called when every step has noted its factors: autograd waits for all users of an output."""
        if not ctx.ledger:
            return None, None, None
        inputs, gradients = (torch.cat(factors) for factors in zip(*ctx.ledger, strict=True))
        ctx.ledger.clear()
        by_bias = gradients.sum(dim=0).to(ctx.dtype) if ctx.has_bias else None
        return (gradients.T @ inputs).to(ctx.dtype), by_bias, None


class StepProduct(torch.autograd.Function):
    """W x + b, whose backward notes the factors of W's gradient instead of multiplying them."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, ledger: Ledger) -> Tensor:
        rows = inputs.flatten(end_dim=-2).to(weight.dtype)
        ctx.save_for_backward(rows, weight)
        ctx.ledger = ledger
        ctx.dtype = inputs.dtype
        return nn.functional.linear(rows, weight, bias).view(*inputs.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_output: Tensor) -> tuple[Tensor, None, None, None]:
        rows, weight = ctx.saved_tensors
        gradient = by_output.flatten(end_dim=-2)
        ctx.ledger.append((rows, gradient))
        return (gradient @ weight).to(ctx.dtype).view(*by_output.shape[:-1], -1), None, None, None


def autocast(tensor: Tensor) -> Tensor:
    """Return the tensor in the type that autocast, if on, would multiply matrices in; never the tensor itself."""
    kind = tensor.device.type
    if torch.is_autocast_enabled(kind):
        return tensor.to(torch.get_autocast_dtype(kind))
    return tensor.view_as(tensor)
