"""Windows: the source positions that a query may attend to (support), and a factor on their weights (taper)."""

import math
from abc import ABC, abstractmethod
from typing import final

import torch
from jaxtyping import Int
from torch import Tensor, nn

from nmt.attention.settings import AttentionSettings
from nmt.attention.shapes import Mask, Position, Query, Support, Taper, at_least_fp32


class Window(nn.Module, ABC):
    """The support of attention, independent of the scores."""

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, query: Query, source_mask: Mask, position: Position) -> tuple[Support, Taper | None]:
        """Return (support, taper).

        `support` is True where a query may attend, at least once in every row. `taper`, None for 1, multiplies the
        weights after normalization. `position` is the target position of the queries.
        """


@final
class Global(Window):
    """All real tokens  (Bahdanau et al., 2015)."""

    def forward(self, query: Query, source_mask: Mask, position: Position) -> tuple[Support, Taper | None]:
        return source_mask[:, None], None


@final
class LocalMonotonic(Window):
    """local-m: the real tokens in [p_t - D, p_t + D], p_t = min(t, S - 1)  (Luong et al., 2015).

    t is the target position and S the sentence's length: source and target are taken to run in parallel.
    """

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__(settings)
        self.radius = settings.radius

    def forward(self, query: Query, source_mask: Mask, position: Position) -> tuple[Support, Taper | None]:
        last = source_mask.sum(dim=1, keepdim=True) - 1
        distances = positions(source_mask) - last.clamp(max=position)[:, :, None]
        return (distances.abs() <= self.radius) & source_mask[:, None], None


@final
class LocalPredictive(Window):
    """local-p: the real tokens in [p_t - D, p_t + D], p_t = S sigmoid(v . tanh(W q))  (Luong et al., 2015).

    S is the sentence's length. The taper exp(-(s - p_t)^2 / 2 (D/2)^2) multiplies the normalized weights of positions
    s, which then sum to less than 1; it gives p_t its gradient. As p_t <= S and D >= 1, the support is never empty.

    v = u / sqrt(d), d = `settings.size`, and u is the parameter, for the reason given at the score `General`: the
    sigmoid would saturate, and learn no more, before the states carry meaning.
    """

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__(settings)
        self.radius = settings.radius
        self.query = nn.Linear(settings.query_size, settings.size, bias=False)
        self.position = nn.Linear(settings.size, 1, bias=False)
        self.scale = 1.0 / math.sqrt(settings.size)

    def forward(self, query: Query, source_mask: Mask, position: Position) -> tuple[Support, Taper | None]:
        relative = at_least_fp32(self.scale * self.position(self.query(query).tanh())).sigmoid()
        centers = source_mask.sum(dim=1)[:, None, None] * relative  # [batch, target, 1]
        distances = positions(source_mask) - centers  # [batch, target, source]
        support = (distances.abs() <= self.radius) & source_mask[:, None]
        return support, (-2.0 * (distances / self.radius).square()).exp()


def positions(source_mask: Mask) -> Int[Tensor, " source"]:
    """Return the source positions 0, 1, 2, ..., on the mask's device."""
    return torch.arange(source_mask.shape[1], device=source_mask.device)


WINDOWS: dict[str, type[Window]] = {
    "global": Global,
    "local_m": LocalMonotonic,
    "local_p": LocalPredictive,
}
