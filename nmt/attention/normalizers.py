"""Normalizers: from scores to weights on the simplex, weights(s) = argmax_p <p, s> - T Omega(p)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nmt.attention.settings import Settings, at_least_fp32


class SampledAttention(NamedTuple):
    """What an objective must know of weights that were drawn at random; None where nothing was.

    Attributes:
        log_prob: log-probability of the position drawn, differentiable by the scores.
        entropy: entropy of the distribution it was drawn from, in nats, differentiable by the scores.
    """

    log_prob: Float[Tensor, "*batch"] | None = None
    entropy: Float[Tensor, "*batch"] | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> "SampledAttention":
        """Apply a function to what is there."""
        return SampledAttention(*(None if part is None else function(part) for part in self))

    @classmethod
    def join(cls, steps: Sequence["SampledAttention"]) -> "SampledAttention":
        """Stack those of several steps, in front."""
        return cls(*(None if parts[0] is None else torch.stack(parts) for parts in zip(*steps, strict=True)))


class Normalizer(nn.Module, ABC):
    """A map onto the simplex that is exactly 0 where a score is -inf. It sees neither queries nor masks.

    `draws` says that in training the weights are drawn at random, so that `sampled` has something to say.
    `usual_temperature` makes training begin alike: at uniform weights over N words a change of one score moves its
    weight by 1 / NT in softmax, 1 / sqrt(N) T in entmax15 and 1 / T in sparsemax, so T is 1, sqrt(N) and N for N = 16.
    """

    draws: ClassVar[bool] = False
    usual_temperature: ClassVar[float] = 1.0

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.temperature = self.usual_temperature if settings.temperature is None else settings.temperature

    @abstractmethod
    def forward(self, scores: Float[Tensor, "*batch source"]) -> Float[Tensor, "*batch source"]:
        """Normalize over the last axis; every row must hold a finite score."""

    def sampled(
        self, scores: Float[Tensor, "*batch source"], weights: Float[Tensor, "*batch source"]
    ) -> SampledAttention:
        """Return how likely the weights were that `forward` made of these scores, if it drew them at random."""
        return SampledAttention()


class Regularized(Normalizer, ABC):
    """The entmax family, p = argmax <p, s> - T Omega_alpha(p), Omega the negative Tsallis alpha-entropy.

    softmax, entmax15 and sparsemax are alpha = 1, 1.5 and 2  (Peters et al., 2019). Their Jacobians are
    (diag(u) - u u^T / sum(u)) / T, with u_j = p_j^(2 - alpha) on the support of p and 0 elsewhere.
    """

    @abstractmethod
    def slope(self, weights: Float[Tensor, "*batch source"]) -> Float[Tensor, "*batch source"]:
        """Return u, the change of each weight with its own score, were the others to make no room for it."""

    def gradient(
        self, weights: Float[Tensor, "*batch source"], by_weights: Float[Tensor, "*batch source"]
    ) -> Float[Tensor, "*batch source"]:
        """Return the gradient of the scores from that of the weights: u (g - <u, g> / sum(u)) / T."""
        slope = self.slope(weights)
        mean = (slope * by_weights).sum(dim=-1, keepdim=True) / slope.sum(dim=-1, keepdim=True)
        return slope * (by_weights - mean) / self.temperature


@final
class Softmax(Regularized):
    """p_j = exp(s_j / T) / sum_k exp(s_k / T): Omega is the negative Shannon entropy, Omega(p) = sum_j p_j log p_j."""

    def forward(self, scores: Float[Tensor, "*batch source"]) -> Float[Tensor, "*batch source"]:
        return (scores if self.temperature == 1.0 else scores / self.temperature).softmax(dim=-1)

    def slope(self, weights: Float[Tensor, "*batch source"]) -> Float[Tensor, "*batch source"]:
        return weights

    def gradient(
        self, weights: Float[Tensor, "*batch source"], by_weights: Float[Tensor, "*batch source"]
    ) -> Float[Tensor, "*batch source"]:
        """Return p (g - <p, g>) / T, the family's formula where sum(u) is 1, by torch's own kernel."""
        found: Tensor = torch.ops.aten._softmax_backward_data.default(by_weights, weights, -1, weights.dtype)
        return found if self.temperature == 1.0 else found / self.temperature


@final
class Sparsemax(Regularized):
    """p_j = [s_j / T - tau]_+: Omega(p) = |p|^2 / 2, the Euclidean projection of s / T  (Martins & Astudillo, 2016)."""

    usual_temperature: ClassVar[float] = 16.0

    def forward(self, scores: Float[Tensor, "*batch source"]) -> Float[Tensor, "*batch source"]:
        weights: Tensor = Solution.apply(at_least_fp32(scores), self)  # type: ignore[no-untyped-call]
        return weights

    def solve(self, scores: Float[Tensor, "*batch source"]) -> Float[Tensor, "*batch source"]:
        """Solve for tau = (s_(1) + ... + s_(k) - 1) / k, for the largest k with s_(k) > tau, of s / T."""
        centered, ordered, counts = arrange(scores / self.temperature)
        thresholds = (ordered.cumsum(dim=-1) - 1.0) / counts
        return (centered - at_support(thresholds, ordered)).clamp_min(0.0)

    def slope(self, weights: Float[Tensor, "*batch source"]) -> Float[Tensor, "*batch source"]:
        return (weights > 0).to(weights.dtype)


@final
class Entmax15(Regularized):
    """p_j = [s_j / 2T - tau]_+^2: Omega(p) = (4/3) (sum_j p_j^(3/2) - 1), sparse and smooth  (Peters et al., 2019)."""

    usual_temperature: ClassVar[float] = 4.0

    def forward(self, scores: Float[Tensor, "*batch source"]) -> Float[Tensor, "*batch source"]:
        weights: Tensor = Solution.apply(at_least_fp32(scores), self)  # type: ignore[no-untyped-call]
        return weights

    def solve(self, scores: Float[Tensor, "*batch source"]) -> Float[Tensor, "*batch source"]:
        """Solve sum_{j <= k} (s_(j) / 2T - tau)^2 = 1, a quadratic in tau, for the largest k with s_(k) / 2T > tau."""
        centered, ordered, counts = arrange(scores / (2.0 * self.temperature))
        mean = ordered.cumsum(dim=-1) / counts
        variance = ordered.square().cumsum(dim=-1) / counts - mean.square()
        thresholds = mean - (1.0 / counts - variance).clamp_min(0.0).sqrt()
        return (centered - at_support(thresholds, ordered)).clamp_min(0.0).square()

    def slope(self, weights: Float[Tensor, "*batch source"]) -> Float[Tensor, "*batch source"]:
        return weights.sqrt()


@final
class Hard(Normalizer):
    """A vertex of the simplex: Omega = 0, weights(s) = the one-hot vector of argmax_j s_j.

    While training it is drawn from p = softmax(s / T) instead, and no gradient passes through the weights: the scores
    learn from `sampled`, the log-probability of what was drawn, by REINFORCE  (Xu et al., 2015). A share of the rows
    gets the expectation of the draw instead, which is p itself, and its gradient: without these, section 4.1 of the
    paper, sampled alone would have to find the first words that are worth looking at.
    """

    draws: ClassVar[bool] = True

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.soft_share = settings.soft_share

    def forward(self, scores: Float[Tensor, "*batch source"]) -> Float[Tensor, "*batch source"]:
        scores = at_least_fp32(scores)
        if not self.training:
            return vertex(scores)
        scores = scores / self.temperature
        # The argmax of Gumbel noise and log p_j has the distribution p.
        drawn = vertex(scores.detach() - torch.empty_like(scores).exponential_().log())
        if not self.soft_share:
            return drawn
        return torch.where(torch.rand_like(scores[..., :1]) < self.soft_share, scores.softmax(dim=-1), drawn)

    def sampled(
        self, scores: Float[Tensor, "*batch source"], weights: Float[Tensor, "*batch source"]
    ) -> SampledAttention:
        if not self.training:
            return SampledAttention()
        log_probs = (at_least_fp32(scores) / self.temperature).log_softmax(dim=-1)
        # By gather, as weights * log_probs would be 0 x -inf = NaN; in the entropy 0 log 0 is 0.
        largest, position = weights.detach().max(dim=-1, keepdim=True)
        log_prob = log_probs.gather(-1, position).where(largest == 1.0, 0.0)[..., 0]  # what was not drawn is certain
        return SampledAttention(log_prob, -(log_probs.exp() * log_probs.nan_to_num(neginf=0.0)).sum(dim=-1))


def vertex(scores: Float[Tensor, "*batch source"]) -> Float[Tensor, "*batch source"]:
    """Return the one-hot vectors of the greatest scores."""
    return torch.zeros_like(scores).scatter(-1, scores.argmax(dim=-1, keepdim=True), 1.0)


class Solution(torch.autograd.Function):
    """The weights of a sorting algorithm, which backward need not go through: their values are enough."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, normalizer: Sparsemax | Entmax15) -> Tensor:
        weights = normalizer.solve(scores)
        ctx.save_for_backward(weights)
        ctx.normalizer = normalizer
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_weights: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        return ctx.normalizer.gradient(weights, by_weights), None


def arrange(scores: Float[Tensor, "*batch source"]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the scores less the greatest of their row, the same in descending order, and 1, 2, 3, ...

    tau is at least -1 then, as no weight exceeds 1. So whatever is below may be raised to -1 where tau is looked
    for, and no -inf enters a sum.
    """
    centered = scores - scores.amax(dim=-1, keepdim=True)
    ordered = centered.clamp_min(-1.0).sort(dim=-1, descending=True).values
    counts = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype, device=scores.device)
    return centered, ordered, counts


def at_support(
    thresholds: Float[Tensor, "*batch source"], ordered: Float[Tensor, "*batch source"]
) -> Float[Tensor, "*batch 1"]:
    """Return the threshold for as many of the greatest scores as exceed the threshold they would bring about."""
    support = (ordered > thresholds).sum(dim=-1, keepdim=True)
    return thresholds.gather(-1, support - 1)


NORMALIZERS: dict[str, type[Normalizer]] = {
    "softmax": Softmax,
    "sparsemax": Sparsemax,
    "entmax15": Entmax15,
    "hard": Hard,
}
