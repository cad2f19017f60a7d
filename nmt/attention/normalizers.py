"""Normalizers: from scores to weights on the simplex, p(s) = argmax_p <p, s> - T Omega(p), T the temperature."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nmt.attention.settings import AttentionSettings
from nmt.attention.shapes import at_least_fp32

Rows = Float[Tensor, "*batch source"]


class SampledAttention(NamedTuple):
    """Log-probability and entropy of weights that were sampled; None if none were.

    Attributes:
        log_prob: log-probability of the sampled position, differentiable with respect to the scores.
        entropy: entropy of the distribution it was sampled from, in nats, differentiable with respect to the scores.
    """

    log_prob: Float[Tensor, "*batch"] | None = None
    entropy: Float[Tensor, "*batch"] | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> "SampledAttention":
        """Apply a function to each tensor that is there."""
        return SampledAttention(*(None if part is None else function(part) for part in self))

    @classmethod
    def join(cls, parts: Sequence["SampledAttention"]) -> "SampledAttention":
        """Stack several along a new first axis."""
        return cls(*(None if tensors[0] is None else torch.stack(tensors) for tensors in zip(*parts, strict=True)))


class Normalizer(nn.Module, ABC):
    """A map onto the simplex that is exactly 0 where a score is -inf. It sees neither queries nor masks.

    The default temperatures make training start at the same pace with each: at uniform weights over N words, the
    derivative of a weight with respect to its own score is about 1 / NT for softmax, 1 / (sqrt(N) T) for entmax15 and
    1 / T for sparsemax. So T is 1, sqrt(N) and N respectively, with N = 16.
    """

    is_sampled: ClassVar[bool] = False  # whether weights are sampled in training
    default_temperature: ClassVar[float] = 1.0

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__()
        self.temperature = self.default_temperature if settings.temperature is None else settings.temperature

    @abstractmethod
    def forward(self, scores: Rows) -> Rows:
        """Normalize over the last axis; every row must hold a finite score."""

    def sampled(self, scores: Rows, weights: Rows) -> SampledAttention:
        """Return log-probability and entropy of the weights that `forward` sampled, given the same scores."""
        return SampledAttention()


class Regularized(Normalizer, ABC):
    """The entmax family, p = argmax <p, s> - T Omega_alpha(p), Omega the negative Tsallis alpha-entropy.

    Softmax, entmax15 and sparsemax are alpha = 1, 1.5 and 2  (Peters et al., 2019). Their Jacobians are
    (diag(u) - u u^T / sum(u)) / T, with u_j = p_j^(2 - alpha) on the support of p and 0 elsewhere.
    """

    @abstractmethod
    def slope(self, weights: Rows) -> Rows:
        """Return u, given p."""

    def gradient(self, weights: Rows, grad_weights: Rows) -> Rows:
        """Return the gradient with respect to the scores: u (g - <u, g> / sum(u)) / T, g that of the weights."""
        slope = self.slope(weights)
        mean = (slope * grad_weights).sum(dim=-1, keepdim=True) / slope.sum(dim=-1, keepdim=True)
        return slope * (grad_weights - mean) / self.temperature


@final
class Softmax(Regularized):
    """p_j = exp(s_j / T) / sum_k exp(s_k / T): Omega is the negative Shannon entropy, Omega(p) = sum_j p_j log p_j."""

    def forward(self, scores: Rows) -> Rows:
        return (scores if self.temperature == 1.0 else scores / self.temperature).softmax(dim=-1)

    def slope(self, weights: Rows) -> Rows:
        return weights


@final
class Sparsemax(Regularized):
    """p_j = [s_j / T - tau]_+: Omega(p) = |p|^2 / 2, the Euclidean projection of s / T  (Martins & Astudillo, 2016)."""

    default_temperature: ClassVar[float] = 16.0

    def forward(self, scores: Rows) -> Rows:
        return SimplexProjection.apply(at_least_fp32(scores), self)  # type: ignore[no-untyped-call]

    def solve(self, scores: Rows) -> Rows:
        """Solve for tau = (s_(1) + ... + s_(k) - 1) / k, for the largest k with s_(k) > tau, of s / T."""
        centered, descending, counts = center_and_sort(scores / self.temperature)
        thresholds = (cumulative_sum(descending) - 1.0) / counts
        return (centered - threshold_of_support(thresholds, descending)).clamp_min(0.0)

    def slope(self, weights: Rows) -> Rows:
        return (weights > 0).to(weights.dtype)


@final
class Entmax15(Regularized):
    """p_j = [s_j / 2T - tau]_+^2: Omega(p) = (4/3) (sum_j p_j^(3/2) - 1), sparse and smooth  (Peters et al., 2019)."""

    default_temperature: ClassVar[float] = 4.0

    def forward(self, scores: Rows) -> Rows:
        return SimplexProjection.apply(at_least_fp32(scores), self)  # type: ignore[no-untyped-call]

    def solve(self, scores: Rows) -> Rows:
        """Solve sum_{j <= k} (s_(j) / 2T - tau)^2 = 1, a quadratic in tau, for the largest k with s_(k) / 2T > tau."""
        centered, descending, counts = center_and_sort(scores / (2.0 * self.temperature))
        mean = cumulative_sum(descending) / counts
        variance = cumulative_sum(descending.square()) / counts - mean.square()
        thresholds = mean - (1.0 / counts - variance).clamp_min(0.0).sqrt()
        return (centered - threshold_of_support(thresholds, descending)).clamp_min(0.0).square()

    def slope(self, weights: Rows) -> Rows:
        return weights.sqrt()


@final
class Hard(Normalizer):
    """Omega = 0: p is a vertex of the simplex, the one-hot vector of argmax_j s_j.

    In training, p is sampled from softmax(s / T) instead, without a gradient through the weights: the scores learn by
    REINFORCE from `sampled`  (Xu et al., 2015). For a share of the queries, `soft_share`, p is softmax(s / T) itself,
    the expectation of the sample, with its gradient (section 4.1 of the paper); their log-probability is 0.
    """

    is_sampled: ClassVar[bool] = True

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__(settings)
        self.soft_share = settings.soft_share

    def forward(self, scores: Rows) -> Rows:
        scores = at_least_fp32(scores)
        if not self.training:
            return one_hot_argmax(scores)
        scores = scores / self.temperature
        # The argmax of s_j / T plus Gumbel noise has the distribution softmax(s / T).
        sample = one_hot_argmax(scores.detach() - torch.empty_like(scores).exponential_().log())
        if not self.soft_share:
            return sample
        return torch.where(torch.rand_like(scores[..., :1]) < self.soft_share, scores.softmax(dim=-1), sample)

    def sampled(self, scores: Rows, weights: Rows) -> SampledAttention:
        if not self.training:
            return SampledAttention()
        log_probs = (at_least_fp32(scores) / self.temperature).log_softmax(dim=-1)
        # By gather, as weights * log_probs would be 0 x -inf = NaN; in the entropy 0 log 0 is 0.
        largest, position = weights.detach().max(dim=-1, keepdim=True)
        is_sample = largest == 1.0
        log_prob = log_probs.gather(-1, position).where(is_sample, 0.0)[..., 0]
        return SampledAttention(log_prob, -(log_probs.exp() * log_probs.nan_to_num(neginf=0.0)).sum(dim=-1))


def one_hot_argmax(scores: Rows) -> Rows:
    """Return the one-hot vectors of the greatest scores."""
    return torch.zeros_like(scores).scatter(-1, scores.argmax(dim=-1, keepdim=True), 1.0)


class SimplexProjection(torch.autograd.Function):
    """`normalizer.solve`, differentiated from the weights alone, so that no intermediate of the sorting is saved."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, normalizer: Sparsemax | Entmax15) -> Tensor:
        weights = normalizer.solve(scores)
        ctx.save_for_backward(weights)
        ctx.normalizer = normalizer
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_weights: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        return ctx.normalizer.gradient(weights, grad_weights), None


def center_and_sort(scores: Rows) -> tuple[Rows, Rows, Float[Tensor, " source"]]:
    """Return the scores less the maximum of their row, these in descending order, and 1, 2, 3, ...

    Centered, tau is at least -1, as no weight exceeds 1. So the scores to sort are raised to -1, and no -inf enters
    their cumulative sums.
    """
    centered = scores - scores.amax(dim=-1, keepdim=True)
    descending = centered.clamp_min(-1.0).sort(dim=-1, descending=True).values
    counts = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype, device=scores.device)
    return centered, descending, counts


def cumulative_sum(x: Rows) -> Rows:
    """Return s_1, s_1 + s_2, ...; on a GPU with `deterministic=true`, which refuses torch's own sum, by a product."""
    if x.device.type == "cpu" or not torch.are_deterministic_algorithms_enabled():
        return x.cumsum(dim=-1)
    with torch.autocast(x.device.type, enabled=False):
        return x @ x.new_ones(x.shape[-1], x.shape[-1]).triu()


def threshold_of_support(thresholds: Rows, descending: Rows) -> Float[Tensor, "*batch 1"]:
    """Return tau: of the thresholds for k = 1, 2, ... that of the largest k whose k-th score exceeds it."""
    size = (descending > thresholds).sum(dim=-1, keepdim=True)
    return thresholds.gather(-1, size - 1)


NORMALIZERS: dict[str, type[Normalizer]] = {
    "softmax": Softmax,
    "sparsemax": Sparsemax,
    "entmax15": Entmax15,
    "hard": Hard,
}
