"""Dropout whose random bits are cheap on a CPU."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.models.layers import Dropout

LEVELS = 2**16


def keep_mask(like: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """Return 1 / (1 - p) with probability 1 - p, else 0; p is `rate` rounded to a multiple of 1 / 65536.

    On a CPU torch draws one Bernoulli variable after the other, at ten times the cost of a multiplication; here each
    64-bit draw of the same generator makes four.
    """
    threshold = min(round(rate * LEVELS), LEVELS - 1)
    words = torch.empty(-(-like.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    numbers = words.view(torch.int16)[: like.numel()].view(like.shape)
    return (numbers >= threshold - LEVELS // 2).to(like.dtype).mul_(LEVELS / (LEVELS - threshold))


def dropout_along(module: Dropout, x: Float[Tensor, "*shape"], axis: int) -> Float[Tensor, "*shape"]:
    """As `Dropout.forward`; a shared mask has too few numbers to be worth another way to draw them."""
    return Dropout.forward(module, x, axis) if module.shared else dropout(module, x)


def dropout(module: nn.Dropout | Dropout, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return x m / (1 - p), m Bernoulli(1 - p), while training  (Srivastava et al., 2014)."""
    if not module.training or not module.p:
        return x
    return x * keep_mask(x, module.p) if x.device.type == "cpu" else nn.functional.dropout(x, module.p)
