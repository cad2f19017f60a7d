"""Normalizers: from scores to weights on the simplex, weights(s) = argmax_p <p, s> - Omega(p)."""

from abc import ABC, abstractmethod
from typing import final

from jaxtyping import Float
from torch import Tensor, nn


class Normalizer(nn.Module, ABC):
    """A map onto the simplex that is exactly 0 where a score is -inf. It sees neither queries nor masks."""

    @abstractmethod
    def forward(self, scores: Float[Tensor, "batch target source"]) -> Float[Tensor, "batch target source"]:
        """Normalize over the last axis; every row must hold a finite score."""


@final
class Softmax(Normalizer):
    """p_j = exp(s_j) / sum_k exp(s_k): Omega is the negative Shannon entropy, Omega(p) = sum_j p_j log p_j."""

    def forward(self, scores: Float[Tensor, "batch target source"]) -> Float[Tensor, "batch target source"]:
        return scores.softmax(dim=-1)


NORMALIZERS: dict[str, type[Normalizer]] = {
    "softmax": Softmax,
}
