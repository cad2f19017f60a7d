"""x W^T + b by the quickest kernels there are."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

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
    if has_quicker_kernels(x) and is_whole(weight):
        return onednn(x.contiguous(), weight, bias)
    return torch.mm(x, weight.t(), out=out) if bias is None else torch.addmm(bias, x, weight.t(), out=out)


def product(weight: Float[Tensor, "*direction output input"]) -> Callable[[Tensor, Tensor], Tensor]:
    """Choose, once for many vectors, how to multiply with W; return f(x, memory that may be written to) = x W^T.

    With an axis before those of the matrix, direction by direction.
    """
    transposed = weight.mT
    if weight.dim() > 2:
        return lambda x, out: torch.bmm(x, transposed, out=out)
    if has_quicker_kernels(weight) and is_whole(weight):
        # To lay out a transposed matrix as oneDNN reads it costs as much as is gained by it in a short chain.
        laid_out = ONEDNN._reorder_linear_weight.default(weight) if weight.is_contiguous() else weight
        return lambda x, out: onednn(x.contiguous(), laid_out, None)
    return lambda x, out: torch.mm(x, transposed, out=out)


def is_whole(weight: Tensor) -> bool:
    """Tell whether a matrix, or its transpose, lies in memory without gaps: otherwise oneDNN crawls."""
    return weight.is_contiguous() or weight.t().is_contiguous()


def has_quicker_kernels(x: Tensor) -> bool:
    """Tell whether oneDNN, which torch has but calls for lower precisions only, is the quicker: fp32 with AVX-512.

    It makes its kernels for the processor it finds. MKL's, which torch calls, are for AVX2 where the processor is not
    Intel's: an update was 1.07 to 1.14 times as quick with oneDNN's on an AMD EPYC with AVX-512, and alike on AVX2.
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
