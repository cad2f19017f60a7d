"""Dropout whose random bits are cheap on a CPU."""

from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

LEVELS = 2**16


def keep_mask(like: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """Return 1 / (1 - p) with probability 1 - p, else 0, p being `rate` rounded to 1 / 65536.

    On a CPU torch draws one Bernoulli variable after the other, at ten times the cost of a multiplication; four of
    these masks' 16-bit numbers come from each 64-bit draw of the same generator.
    """
    if like.device.type != "cpu":
        return nn.functional.dropout(torch.ones_like(like), rate)
    threshold = round(rate * LEVELS)
    words = torch.empty(-(-like.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    numbers = words.view(torch.int16)[: like.numel()].view(like.shape)
    return (numbers >= threshold - LEVELS // 2).to(like.dtype).mul_(LEVELS / (LEVELS - threshold))


@final
class Dropout(nn.Dropout):
    """x m / (1 - p), m Bernoulli(1 - p), while training  (Srivastava et al., 2014)."""

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return x * keep_mask(x, self.p) if self.training and self.p else x
