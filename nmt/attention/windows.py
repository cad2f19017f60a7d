"""Windows: which source positions a query may see, and how they are tapered."""

import math
from abc import ABC, abstractmethod
from typing import final

import torch
from jaxtyping import Int
from torch import Tensor, nn

from nmt.attention.settings import Settings, at_least_fp32
from nmt.attention.shapes import Mask, Query, Step, Support, Taper


class Window(nn.Module, ABC):
    """Decides the support of attention, whatever the scores. Real tokens come first, and padding after them."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, query: Query, source_mask: Mask, step: Step) -> tuple[Support, Taper | None]:
        """Return (support, taper).

        `support` is True where a position may be seen, and at least once in every row. `taper`, or None for
        none, multiplies the weights after normalization. `step` is the target position: one for all queries,
        or a tensor with that of each.
        """


@final
class Global(Window):
    """Every real token of the source  (Bahdanau et al., 2015)."""

    def forward(self, query: Query, source_mask: Mask, step: Step) -> tuple[Support, Taper | None]:
        return source_mask[:, None], None


@final
class LocalMonotonic(Window):
    """The real tokens in [p_t - D, p_t + D], p_t = t, as if word followed word  (local-m: Luong et al., 2015).

    Where the target outlives the source, p_t stays at the last token.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.radius = settings.radius

    def forward(self, query: Query, source_mask: Mask, step: Step) -> tuple[Support, Taper | None]:
        last = source_mask.sum(dim=1, keepdim=True) - 1
        distances = positions(source_mask) - last.clamp(max=step)[:, :, None]
        return (distances.abs() <= self.radius) & source_mask[:, None], None


@final
class LocalPredictive(Window):
    """The real tokens in [p_t - D, p_t + D], p_t = S sigmoid(v . tanh(W q)), S the sentence's length.

    local-p of Luong et al. (2015): exp(-(s - p_t)^2 / 2 (D/2)^2) tapers the weights after they are normalized, so
    they sum to less than 1, and p_t learns. As p_t <= S and D >= 1, the window always holds a token.

    v = u / sqrt(d), and u is what is learned, as in the score `general`: or the sigmoid would be at one of its ends,
    where it no longer learns, before there is anything to look for.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.radius = settings.radius
        self.query = nn.Linear(settings.query_size, settings.size, bias=False)
        self.position = nn.Linear(settings.size, 1, bias=False)
        self.scale = 1.0 / math.sqrt(settings.size)

    def forward(self, query: Query, source_mask: Mask, step: Step) -> tuple[Support, Taper | None]:
        share = at_least_fp32(self.scale * self.position(self.query(query).tanh())).sigmoid()
        centers = source_mask.sum(dim=1)[:, None, None] * share
        distances = positions(source_mask) - centers
        support = (distances.abs() <= self.radius) & source_mask[:, None]
        return support, (-2.0 * (distances / self.radius).square()).exp()


def positions(source_mask: Mask) -> Int[Tensor, " source"]:
    """Return 0, 1, 2, ..., one a source token."""
    return torch.arange(source_mask.shape[1], device=source_mask.device)


WINDOWS: dict[str, type[Window]] = {
    "global": Global,
    "local_m": LocalMonotonic,
    "local_p": LocalPredictive,
}
