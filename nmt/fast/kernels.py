"""Private entry points of torch (oneDNN kernels, the id of the backward pass), each with a fallback; derivatives."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.attention.shapes import at_least_fp32

# Where this build of torch has no oneDNN they are None, and `most_rows` is 0.
LINEAR: Any = getattr(getattr(torch.ops.mkldnn, "_linear_pointwise", None), "default", None)
REORDER: Any = getattr(getattr(torch.ops.mkldnn, "_reorder_linear_weight", None), "default", None)
# Whether oneDNN multiplies in bf16 here: by instructions for it, or with AVX-512 by others.
HAS_BF16 = bool(getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)())
PASS: Any = getattr(torch._C, "_current_graph_task_id", lambda: 0)  # see `backward_pass`


def processor() -> tuple[str, int]:
    """Return the processor's maker and family, as Linux names them; ("", 0) where the system does not say."""
    try:
        with Path("/proc/cpuinfo").open(encoding="ascii", errors="replace") as file:
            text = file.read(4_096)
    except OSError:
        text = ""
    maker = re.search(r"^vendor_id\s*: (\w+)", text, re.MULTILINE)
    family = re.search(r"^cpu family\s*: (\d+)", text, re.MULTILINE)
    return maker[1] if maker else "", int(family[1]) if family else 0


# See `most_rows`: by the processor's instructions (measured: docs/engineering-log.md, training speed and search).
FEW_ROWS = {"AVX512": math.inf, "AVX2": 128}
FEW_ROWS_ON_INTEL = {"AVX512": 0, "AVX2": 128}
PROCESSOR = processor()
IS_INTEL = PROCESSOR[0] == "GenuineIntel"  # MKL is made for these
# Zen 4 computes the 512 bits of an instruction in two halves: oneDNN's kernels are a fifth faster than MKL's there. On
# Zen 5 they are twice as fast.
IS_ZEN_4 = PROCESSOR == ("AuthenticAMD", 25)
# Whether the processor has a matrix unit for 16-bit numbers.
AMX = bool(getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)())


def most_rows(x: Tensor) -> float:
    """Return the largest number of rows for which a product with a oneDNN-packed weight beats torch's; 0 for never.

    torch has oneDNN, but calls it for lower precisions, and MKL for fp32. In bf16 packing saves converting the weight
    and laying it out each time.
    """
    is_enabled = None not in (LINEAR, REORDER) and bool(torch.backends.mkldnn.enabled)
    if not is_enabled or x.device.type != "cpu" or x.dtype not in (torch.float32, torch.bfloat16):
        return 0
    if x.dtype == torch.bfloat16:
        return math.inf if HAS_BF16 else 0
    few_rows = FEW_ROWS_ON_INTEL if IS_INTEL else FEW_ROWS
    return few_rows.get(torch.backends.cpu.get_cpu_capability(), 0)


def onednn_is_faster(x: Tensor) -> bool:
    """Return whether oneDNN is faster for any number of rows: in fp32 with AVX-512 on a processor that is not Intel's.

    oneDNN generates its kernels for the processor at hand. MKL, which torch calls, uses those for AVX2 on a processor
    that is not Intel's; on Intel's its own are the faster (docs/engineering-log.md).
    """
    return x.dtype == torch.float32 and most_rows(x) == math.inf


def copying_pays(x: Tensor) -> bool:
    """Return whether oneDNN is so much faster that a transposed left factor, which it has to copy, should be its too.

    torch itself calls it for 16-bit numbers.
    """
    return x.device.type == "cpu" and (x.dtype.itemsize == 2 or (onednn_is_faster(x) and not IS_ZEN_4))


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """Return the type that autocast, if enabled, multiplies matrices in; else the tensor's."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else tensor.dtype


def to_compute_dtype(tensor: Tensor) -> Tensor:
    """Return the tensor in its `compute_dtype`."""
    return tensor.to(compute_dtype(tensor))


def onednn_multiplies(x: Tensor) -> bool:
    """Return whether a product of `affine` is left to oneDNN: torch does that for 16-bit numbers, we for fp32."""
    return x.device.type == "cpu" and (x.dtype.itemsize == 2 or onednn_is_faster(x))


def padded_size(rows: int, x: Tensor) -> int:
    """Return the number of rows to pad to: slightly more than `rows` for 16-bit products with AMX, else `rows`.

    oneDNN generates a kernel for each number of rows. With AMX that takes 2 ms, longer than most products of training.
    So the number is rounded up to a multiple of 8, and to one of 16 steps between powers of 2: many batches then have
    the same number and reuse the kernels (docs/engineering-log.md).
    """
    if not AMX or x.device.type != "cpu" or x.dtype.itemsize != 2:
        return rows
    step = max(8, 1 << max(0, (rows - 1).bit_length() - 5))
    return math.ceil(rows / step) * step


def pad_rows(x: Float[Tensor, "row size"]) -> Float[Tensor, "more size"]:
    """Return the matrix with zeros below, `padded_size` rows in all."""
    more = padded_size(len(x), x) - len(x)
    return nn.functional.pad(x, (0, 0, 0, more)) if more else x


def onednn_linear(x: Float[Tensor, "*row input"], weight: Tensor, bias: Tensor | None) -> Float[Tensor, "*row output"]:
    """Return x W^T + b; `weight` may be the result of `REORDER`. Not for autograd."""
    return LINEAR(x, weight, bias, "none", [], "")


def has_no_gaps(weight: Tensor) -> bool:
    """Return whether a matrix or its transpose is contiguous: oneDNN is slow on any other."""
    return weight.is_contiguous() or weight.t().is_contiguous()


def affine(
    x: Float[Tensor, "row input"],
    weight: Float[Tensor, "output input"],
    bias: Float[Tensor, " output"] | None = None,
    *,
    out: Float[Tensor, "row output"] | None = None,
) -> Float[Tensor, "row output"]:
    """Return x W^T + b by the faster library; not for autograd.

    Args:
        x: vectors.
        weight: W.
        bias: b, if any.
        out: memory that may be written to; the result may be elsewhere.
    """
    padded = pad_rows(x)
    return product(padded, weight, bias, out if padded is x else None)[: len(x)]


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """As `affine`, of matrices whose shapes repeat."""
    if onednn_is_faster(x) and has_no_gaps(weight):
        return onednn_linear(x.contiguous(), weight, bias)
    return torch.mm(x, weight.t(), out=out) if bias is None else torch.addmm(bias, x, weight.t(), out=out)


def is_transposed(outputs: int, x: Float[Tensor, "row input"]) -> bool:
    """Return whether to compute grad^T x as (x^T grad)^T: if the left factor is copied, it should be the smaller.

    For AMX oneDNN copies either, block by block, so nothing is won.
    """
    is_copied = copying_pays(x) and not (AMX and x.dtype.itemsize == 2)
    return is_copied and x.shape[1] < outputs


def grad_weight(
    grad: Float[Tensor, "*direction row output"], x: Float[Tensor, "*direction row input"]
) -> Float[Tensor, "*direction output input"]:
    """Return grad^T x, the gradient of the weights of y = W x, by the faster library."""
    if grad.dim() > 2:
        return torch.stack([grad_weight(*pair) for pair in zip(grad, x, strict=True)])
    if not copying_pays(x):
        return torch.mm(grad.t(), x)
    grad, x = pad_rows(grad), pad_rows(x)
    return product(x.t(), grad.t()).t() if is_transposed(grad.shape[1], x) else product(grad.t(), x.t())


def add_grad_weight(
    total: Float[Tensor, "output input"] | None, grad: Float[Tensor, "row output"], x: Float[Tensor, "row input"]
) -> Float[Tensor, "output input"]:
    """Return total + grad^T x, in fp32 at least, in the memory of the total; within the product, if not by oneDNN.

    The first gradient, given no total, becomes the total, and so sets its layout: adding a matrix that is stored by
    rows to one that is stored by columns takes four times as long.
    """
    if total is None:
        return at_least_fp32(grad_weight(grad, x))
    if grad.dtype == total.dtype and not copying_pays(grad):
        return torch.addmm(total, grad.t(), x, out=total)
    return total.add_(grad_weight(grad, x))


Multiply = Callable[[Tensor], Tensor]


def prepare_product(weight: Float[Tensor, "*direction output input"]) -> Multiply:
    """Choose, once for many products, how to multiply by W; return f(x) = x W^T.

    An axis before those of the matrix makes it a batch of matrices.
    """
    if weight.dim() > 2:
        if not copying_pays(weight):
            return lambda x: torch.bmm(x, weight.mT)
        products = [prepare_product(matrix) for matrix in weight]
        return lambda x: torch.stack([multiply(rows) for multiply, rows in zip(products, x, strict=True)])
    if onednn_is_faster(weight) and has_no_gaps(weight):
        ordered = REORDER(weight.contiguous())  # a matrix that is still transposed takes ten times as long to reorder
        return lambda x: onednn_linear(x.contiguous(), ordered, None)
    return lambda x: torch.mm(pad_rows(x), weight.t())[: len(x)]


def backward_pass() -> int:
    """Return the id of autograd's current backward pass, unique to it; 0 if this torch does not provide one."""
    return int(PASS())


def tanh_(x: Tensor) -> Tensor:
    """Set x to tanh x = 2 sigma(2x) - 1, in place: on a CPU torch's sigmoid is six times as fast as its tanh."""
    return x.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0) if x.device.type == "cpu" else x.tanh_()


def grad_tanh(grad_output: Tensor, output: Tensor, out: Tensor) -> None:
    """Write grad_output (1 - output^2) to `out`."""
    torch.ops.aten.tanh_backward.grad_input(grad_output, output, grad_input=out)


def grad_sigmoid(grad_output: Tensor, output: Tensor, out: Tensor) -> None:
    """Write grad_output output (1 - output) to `out`."""
    torch.ops.aten.sigmoid_backward.grad_input(grad_output, output, grad_input=out)
