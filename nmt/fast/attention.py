"""Attention within a recurrence: keys and values are shared by all steps (see `nmt.fast.products`)."""

from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.attention.attention import Attention, AttentionMechanism, Memory
from nmt.attention.scores import Additive, Score
from nmt.attention.shapes import Keys, Query, Scores, States, at_least_fp32
from nmt.fast.kernels import backward_pass
from nmt.fast.products import PerSentence, factor_of, multiply, share


def share_memory(attention: AttentionMechanism, memory: Memory) -> Memory:
    """Return a memory for all steps to read."""
    keys, values, mask = memory
    score = attention.score if type(attention) is Attention else None
    factor = AdditiveKeys(keys, score) if isinstance(score, Additive) else PerSentence(keys, transposed=True)
    return Memory(share(keys, factor), share(values, PerSentence(values, transposed=False)), mask)


def expectation(attention: Attention, weights: Scores, values: States) -> Float[Tensor, "batch target value"]:
    """As `Attention.expectation`."""
    if factor_of(values) is None:
        return type(attention).expectation(attention, weights, values)
    return multiply(weights, values)


def inner_product(score: Score, query: Query, keys: Keys) -> Scores:
    """As `Score.inner_product`."""
    return type(score).inner_product(score, query, keys) if factor_of(keys) is None else multiply(query, keys)


def additive(score: Additive, query: Query, keys: Keys) -> Scores:
    """As `Additive.forward`."""
    factor = factor_of(keys)
    if not isinstance(factor, AdditiveKeys):
        return score.score_pairs(query, keys[:, None])
    return AdditiveStep.apply(score.query(query), keys, score.energy.weight, factor)  # type: ignore[no-untyped-call]


def score_pairs(score: Additive, query: Tensor, keys: Tensor) -> Tensor:
    """As `Additive.score_pairs`: tanh x = 2 sigma(2x) - 1, and torch's sigmoid on a CPU is much faster than its tanh.

    Not in 16 bits, in which the difference has few digits left.
    """
    doubled = torch.add(2.0 * at_least_fp32(score.query(query))[:, :, None], keys, alpha=2.0)
    energy = score.energy.weight[0]
    with torch.autocast(keys.device.type, enabled=False):
        return 2.0 * (doubled.sigmoid_() @ energy) - energy.sum()


@final
class AdditiveKeys:
    """Shared by all steps: the doubled keys, a buffer for sigmoids, the gradient of keys without its factor 4 v."""

    def __init__(self, keys: Keys, score: Additive) -> None:
        self.energy = score.energy.weight.detach()[0].to(keys.dtype)
        self.doubled = 2.0 * keys.detach()
        self.sigmoids, self.key_grad_sum = torch.empty_like(self.doubled), torch.empty_like(self.doubled)
        self.backward_pass = -1  # the pass that `key_grad_sum` belongs to; -1 after `total_grad`

    def activate(self, query: Float[Tensor, "batch 1 key"]) -> Keys:
        """Return sigma(2q + 2k) of a step."""
        return torch.add(self.doubled, query, alpha=2.0, out=self.sigmoids).sigmoid_()

    def add(self, grad_scores: Scores, slope: Keys) -> None:
        """Add a step's contribution to the gradient of the keys; leftovers of an earlier backward pass are dropped."""
        if self.backward_pass != backward_pass():
            self.backward_pass = backward_pass()
            self.key_grad_sum.zero_()
        self.key_grad_sum.addcmul_(grad_scores.mT, slope)

    def total_grad(self) -> Keys | None:
        """Return the gradient of the keys over all steps of this backward pass; None if there were none."""
        if self.backward_pass != backward_pass():
            return None
        self.backward_pass = -1
        return self.key_grad_sum * (4.0 * self.energy)


@final
class AdditiveStep(torch.autograd.Function):
    """v . tanh(q + k) = 2 v . sigma(2q + 2k) - sum v.

    Sigmoids are computed again on the way back: kept for all steps, they would take batch x target x source x size
    numbers.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Float[Tensor, "batch 1 key"], keys: Keys, energy: Float[Tensor, "1 key"], factor: AdditiveKeys
    ) -> Scores:
        ctx.save_for_backward(query, keys, energy)
        ctx.factor = factor
        return (factor.activate(query) @ factor.energy)[:, None].mul_(2.0).sub_(factor.energy.sum())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_scores: Scores) -> tuple[Tensor | None, ...]:
        factor, query = ctx.factor, ctx.saved_tensors[0]
        sigmoids = factor.activate(query)
        grad_energy = 2.0 * (sigmoids.flatten(0, 1).t() @ grad_scores.flatten()) - grad_scores.sum()
        slope = sigmoids.addcmul_(sigmoids, sigmoids, value=-1.0)  # a quarter of tanh'
        factor.add(grad_scores, slope)
        return torch.bmm(grad_scores, slope).mul_(4.0 * factor.energy), None, grad_energy[None], None
