"""Attention within a recurrence: keys and values are shared by all steps (see `nmt.fast.products`)."""

from typing import Any, NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.attention.attention import Attention, AttentionMechanism, Memory
from nmt.attention.scores import Additive, Score
from nmt.attention.shapes import Keys, Query, Scores, States
from nmt.fast.products import PerSentence, factor_of, multiply, share


def share_memory(attention: AttentionMechanism, memory: Memory) -> Memory:
    """Return a memory for all steps to read."""
    keys, values, mask = memory
    score = attention.score if type(attention) is Attention else None
    factor = AdditiveKeys(keys, score) if isinstance(score, Additive) else PerSentence(keys, transposed=True)
    return Memory(share(keys, factor), share(values, PerSentence(values, transposed=False)), mask)


def average(attention: Attention, weights: Scores, values: States) -> Float[Tensor, "batch target value"]:
    """As `Attention.average`."""
    if factor_of(values) is None:
        return type(attention).average(attention, weights, values)
    return multiply(weights, values)


def match(score: Score, query: Query, keys: Keys) -> Scores:
    """As `Score.match`."""
    return type(score).match(score, query, keys) if factor_of(keys) is None else multiply(query, keys)


def additive(score: Additive, query: Query, keys: Keys) -> Scores:
    """As `Additive.forward`."""
    factor = factor_of(keys)
    if not isinstance(factor, AdditiveKeys):
        return score.compare(query, keys[:, None])
    return AdditiveStep.apply(score.query(query), keys, score.energy.weight, factor)  # type: ignore[no-untyped-call]


def compare(score: Additive, query: Tensor, keys: Tensor) -> Tensor:
    """As `Additive.compare`: tanh x = 2 sigma(2x) - 1, and torch's sigmoid on a CPU is much faster than its tanh."""
    doubled = torch.add(2.0 * score.query(query)[:, :, None], keys, alpha=2.0)
    energy = score.energy.weight[0]
    return 2.0 * (doubled.sigmoid_() @ energy) - energy.sum()


CACHED = 2**21  # numbers, 8 MiB of fp32; with keys and sums beside them 24 MiB, where 32 MiB of cache were best used


def rows_at_a_time(keys: Keys) -> int:
    """Return how many rows of keys fit the cache, to be read again and again at every step."""
    rows, length, size = keys.shape
    num_blocks = min(rows, max(1, -(-rows * length * size // CACHED)))
    return -(-rows // num_blocks)


class Block(NamedTuple):
    """Some rows: their keys, doubled; memory for a step's gates; the sum of the keys' gradients, but for 4 v."""

    rows: slice
    doubled_keys: Keys
    gates: Keys
    key_grad_sum: Keys

    def gate(self, doubled_query: Float[Tensor, "_ 1 key"]) -> Keys:
        """Return the gates sigma(2q + 2k) of a step."""
        return torch.add(self.doubled_keys, doubled_query[self.rows], out=self.gates).sigmoid_()


@final
class AdditiveKeys:
    """The keys of additive attention, rows by the cacheful, with the sum of their gradients."""

    def __init__(self, keys: Keys, score: Additive) -> None:
        self.energy = score.energy.weight.detach()[0].to(keys.dtype)
        self.energy_sum = self.energy.sum()
        self.key_grad_sum, doubled, count = torch.zeros_like(keys), 2.0 * keys.detach(), rows_at_a_time(keys)
        gates = torch.empty_like(doubled[:count])
        parts = [slice(start, start + count) for start in range(0, len(keys), count)]
        self.blocks = [Block(part, doubled[part], gates[: len(keys[part])], self.key_grad_sum[part]) for part in parts]

    def total(self) -> Keys:
        """Return the gradient of the keys over all steps that were run back since the last call."""
        total = self.key_grad_sum * (4.0 * self.energy)
        self.key_grad_sum.zero_()
        return total


@final
class AdditiveStep(torch.autograd.Function):
    """v . tanh(q + k) = 2 v . sigma(2q + 2k) - sum v.

    Gates are computed again on the way back: kept for all steps, they would take batch x target x source x size
    numbers.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Float[Tensor, "batch 1 key"], keys: Keys, energy: Float[Tensor, "1 key"], factor: AdditiveKeys
    ) -> Scores:
        ctx.save_for_backward(query, keys, energy)
        ctx.factor, doubled = factor, 2.0 * query
        scores = query.new_empty(len(query), 1, keys.shape[1])
        for block in factor.blocks:
            gates = block.gate(doubled).flatten(0, 1)
            torch.mv(gates, factor.energy, out=scores[block.rows].view(-1))
        return scores.mul_(2.0).sub_(factor.energy_sum)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_scores: Scores) -> tuple[Tensor | None, ...]:
        factor, query = ctx.factor, ctx.saved_tensors[0]
        doubled, grad_query = 2.0 * query, torch.empty_like(query)
        grad_energy = -grad_scores.sum().expand_as(factor.energy)
        for block in factor.blocks:
            gates, grad = block.gate(doubled), grad_scores[block.rows]
            grad_energy = torch.addmv(grad_energy, gates.flatten(0, 1).t(), grad.flatten(), alpha=2.0)
            slope = gates.addcmul_(gates, gates, value=-1.0)  # a quarter of tanh'
            block.key_grad_sum.addcmul_(grad.mT, slope)
            torch.bmm(grad, slope, out=grad_query[block.rows])
        return grad_query.mul_(4.0 * factor.energy), None, grad_energy[None], None
