"""Linear maps of many vectors at once, forward and backward by the faster library."""

from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nmt.fast.kernels import (
    REORDER,
    compute_dtype,
    grad_weight,
    most_rows,
    onednn_linear,
    onednn_multiplies,
    pad_rows,
    product,
    to_compute_dtype,
)
from nmt.fast.products import factor_of, multiply

PACKED = "packed"  # attribute of a linear map


def linear(module: nn.Linear, x: Float[Tensor, "*row input"]) -> Float[Tensor, "*row output"]:
    """As `nn.Linear.forward`."""
    if factor_of(module.weight) is not None:  # within a recurrence
        y = multiply(x, module.weight)
        return y if module.bias is None else y + module.bias
    packed = vars(module).get(PACKED)
    if packed is not None and not torch.is_grad_enabled() and packed.multiplies(x):
        return packed(x)
    return project(x, module.weight, module.bias)


def pack_weights(model: nn.Module) -> None:
    """Store the linear maps of an accelerated model as oneDNN multiplies by them, where that makes a step faster.

    Under autocast, in its precision. The model can only translate afterwards.
    """
    for module in model.modules():
        if type(module) is nn.Linear and min(module.weight.shape) > 1 and most_rows(to_compute_dtype(module.weight)):
            setattr(module, PACKED, PackedLinear(module.weight, module.bias, compute_dtype(module.weight)))


@final
class PackedLinear:
    """A linear map in oneDNN's layout. That cannot be copied or pickled, so it is made anew with the copy."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self.weight, self.bias = weight, bias
        self.layout = REORDER(weight.detach().to(dtype))
        self.offset = None if bias is None else bias.detach().to(dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedLinear, (self.weight, self.bias, self.layout.dtype)

    def multiplies(self, x: Float[Tensor, "*row input"]) -> bool:
        """Return whether this is the map's precision at present, and the faster way for so many vectors."""
        is_same = (x.device, compute_dtype(x)) == (self.layout.device, self.layout.dtype)
        return is_same and x.shape[:-1].numel() <= most_rows(self.layout)

    def __call__(self, x: Float[Tensor, "*row input"]) -> Float[Tensor, "*row output"]:
        """Return W x + b."""
        rows = x.to(self.layout.dtype).reshape(-1, x.shape[-1])
        y = onednn_linear(pad_rows(rows), self.layout, self.offset)[: len(rows)]
        return y.view(*x.shape[:-1], len(self.weight))


def project(x: Float[Tensor, "*row input"], weight: Tensor, bias: Tensor | None) -> Float[Tensor, "*row output"]:
    """Return W x + b. What oneDNN cannot do, or not faster, is left to torch: no rows, another precision, a vector."""
    is_product = x.device.type == "cpu" and x.dim() > 1 and x.numel() > 0 and min(weight.shape) > 1
    if not is_product or not onednn_multiplies(rows := to_compute_dtype(x).flatten(0, -2)):
        return nn.functional.linear(x, weight, bias)
    offset = None if bias is None else to_compute_dtype(bias)
    y: Tensor = Projection.apply(rows, to_compute_dtype(weight), offset)  # type: ignore[no-untyped-call]
    return y.view(*x.shape[:-1], len(weight))


@final
class Projection(torch.autograd.Function):
    """Y = X W^T + b and its gradients G W, G^T X and the sum of G's rows."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "row input"],
        weight: Float[Tensor, "output input"],
        bias: Float[Tensor, " output"] | None,
    ) -> Float[Tensor, "row output"]:
        """Return Y."""
        rows, x = len(x), pad_rows(x)
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)[:rows]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Float[Tensor, "row output"]) -> tuple[Tensor | None, ...]:
        """Return the gradients that are needed."""
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        rows, grad = len(grad), pad_rows(grad).contiguous()
        return (
            product(grad, weight.t())[:rows] if needs_x else None,
            grad_weight(grad, x).contiguous() if needs_weight else None,
            grad.sum(dim=0) if needs_bias else None,
        )
