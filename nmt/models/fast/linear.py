"""x W^T + b by the quickest kernels there are."""

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

ONEDNN = torch.ops.mkldnn


def affine(
    x: Float[Tensor, "row input"],
    weight: Float[Tensor, "output input"],
    bias: Float[Tensor, " output"] | None = None,
    *,
    out: Float[Tensor, "row output"] | None = None,
) -> Float[Tensor, "row output"]:
    """Return x W^T + b, in `out` or in memory of its own; not for autograd.

    Args:
        x: vectors.
        weight: W, as it lies in memory or transposed.
        bias: b, if any.
        out: memory that may be written to.
    """
    if has_quicker_kernels(x) and (weight.is_contiguous() or weight.t().is_contiguous()):  # oneDNN crawls otherwise
        return onednn(x.contiguous(), weight, bias)
    return torch.mm(x, weight.t(), out=out) if bias is None else torch.addmm(bias, x, weight.t(), out=out)


def has_quicker_kernels(x: Tensor) -> bool:
    """Tell whether oneDNN, which torch has but calls for lower precisions only, is the quicker: fp32 with AVX-512.

    It makes its kernels for the processor it finds. MKL's, which torch calls, are for AVX2 where the processor is not
    Intel's: within training oneDNN's were 1.2 times as quick on an AMD EPYC with AVX-512, and alike on one with AVX2.
    """
    return (
        x.device.type == "cpu"
        and x.dtype == torch.float32
        and bool(torch.backends.mkldnn.enabled)
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
    )


def onednn(x: Float[Tensor, "*row input"], weight: Tensor, bias: Tensor | None) -> Float[Tensor, "*row output"]:
    """Multiply by oneDNN; `weight` may be as oneDNN has laid it out."""
    result: Tensor = ONEDNN._linear_pointwise.default(x, weight, bias, "none", [], "")
    return result


@final
class Packed(nn.Linear):
    """A linear map whose weights do not change any more, laid out as oneDNN reads them."""

    def __init__(self, linear: nn.Linear) -> None:
        size = linear.in_features, linear.out_features
        super().__init__(*size, bias=linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.packed = ONEDNN._reorder_linear_weight.default(linear.weight.detach())

    def forward(self, x: Float[Tensor, "*row input"]) -> Float[Tensor, "*row output"]:
        """Return W x + b; as any linear map where a gradient is wanted, or another precision."""
        if torch.is_grad_enabled() or torch.is_autocast_enabled(x.device.type) or x.dtype != torch.float32:
            return super().forward(x)
        return onednn(x, self.packed, self.bias)


def pack(model: nn.Module) -> None:
    """Pack the linear maps of a model that only translates from now on, if that makes them quicker."""
    if not has_quicker_kernels(next(model.parameters())):
        return
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear and min(child.weight.shape) > 1:
                setattr(module, name, Packed(child))
