"""Attention step by step with its derivative: additive and dot-product scores over all of the source."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.attention.attention import Attention, AttentionMechanism, Memory
from nmt.attention.normalizers import Regularized, Softmax
from nmt.attention.scores import Additive, Dot, General, ScaledDot
from nmt.attention.windows import Global
from nmt.fast.arena import Arena
from nmt.fast.cells import ParameterGrad
from nmt.fast.kernels import grad_softmax
from nmt.fast.linear import STEP


def as_rows(x: Float[Tensor, "step row size"]) -> tuple[Float[Tensor, "row 1 size"], ...]:
    """Return each step's rows as matrices of one row, as batched products take them."""
    return x.unsqueeze(2).unbind(0)


class AttentionSteps(ABC):
    """Computes weights and contexts step by step, for any normalizer that is differentiable given its weights.

    `weight`, if any, maps the hidden vector to the query.
    """

    weight: Tensor | None = None

    def __init__(self, arena: Arena, memory: Memory, steps: int, normalizer: Regularized) -> None:
        self.keys, self.values, mask = memory
        self.transposed_keys, self.transposed_values = self.keys.transpose(1, 2), self.values.transpose(1, 2)
        self.normalizer = normalizer
        self.forbidden = ~mask
        dtype, (rows, length, size) = self.values.dtype, self.values.shape
        self.all_weights, self.all_grad_scores = (arena.take(steps, rows, length, dtype=dtype) for _ in range(2))
        self.all_contexts, self.all_grad_contexts = (arena.take(steps, rows, size, dtype=dtype) for _ in range(2))
        self.scores = arena.take(rows, length, dtype=dtype)
        self.weights, self.contexts = self.all_weights.unbind(STEP), self.all_contexts.unbind(STEP)
        self.grad_scores, self.grad_contexts = self.all_grad_scores.unbind(STEP), self.all_grad_contexts.unbind(STEP)
        self.weight_rows, self.context_rows = as_rows(self.all_weights), as_rows(self.all_contexts)
        self.grad_score_rows, self.grad_context_rows = as_rows(self.all_grad_scores), as_rows(self.all_grad_contexts)

    @abstractmethod
    def score(self, step: int, query: Float[Tensor, "row query"]) -> None:
        """Write the scores of the query against every key to `scores`."""

    @abstractmethod
    def grad_query(self, step: int) -> Float[Tensor, "row query"]:
        """Return the gradient of the query from that of the step's scores, valid until the next call."""

    @abstractmethod
    def grad_keys(self) -> Float[Tensor, "row source key"]:
        """Return the gradient of the keys, when every step has been through `backward`."""

    @abstractmethod
    def grads(self) -> Iterator[ParameterGrad]:
        """Yield the gradients of the score's parameters, but for `weight`."""

    def forward(self, step: int, query: Float[Tensor, "row query"]) -> Float[Tensor, "row value"]:
        """Attend; return the context."""
        self.score(step, query)
        self.weights[step].copy_(self.normalizer(self.scores.masked_fill_(self.forbidden, float("-inf"))))
        torch.bmm(self.weight_rows[step], self.values, out=self.context_rows[step])
        return self.contexts[step]

    def backward(
        self, step: int, grad_context: Float[Tensor, "row value"], grad_weights: Float[Tensor, "row source"] | None
    ) -> Float[Tensor, "row query"]:
        """Return the gradient of the query, valid until the next call."""
        self.grad_contexts[step].copy_(grad_context)
        grad = torch.bmm(self.grad_context_rows[step], self.transposed_values)[:, 0]
        if grad_weights is not None:
            grad += grad_weights
        self.grad_scores[step].copy_(self.grad_normalizer(self.weights[step], grad))
        return self.grad_query(step)

    def grad_normalizer(
        self, weights: Float[Tensor, "row source"], grad_weights: Float[Tensor, "row source"]
    ) -> Float[Tensor, "row source"]:
        """Return the gradient of the scores from that of the weights."""
        if isinstance(self.normalizer, Softmax) and self.normalizer.temperature == 1.0:
            return grad_softmax(grad_weights, weights)
        return self.normalizer.gradient(weights, grad_weights)

    def grad_memory(self) -> tuple[Float[Tensor, "row source key"], Float[Tensor, "row source value"]]:
        """Return the gradients of keys and values."""
        return self.grad_keys(), torch.bmm(self.all_weights.permute(1, 2, 0), self.all_grad_contexts.transpose(0, 1))


CACHED = 2**21  # numbers, 8 MiB of fp32; with keys and sums beside them 24 MiB, where 32 MiB of cache were best used


def rows_at_a_time(keys: Float[Tensor, "row source size"]) -> int:
    """Return how many rows of keys fit the cache, to be read again and again at every step."""
    rows, length, size = keys.shape
    num_blocks = min(rows, max(1, -(-rows * length * size // CACHED)))
    return -(-rows // num_blocks)


class Block(NamedTuple):
    """Some rows of additive attention: their keys, doubled; a step's gates and scores; the sum of the keys' gradients.

    `gates_flat` is `gates` with rows and source positions as one axis.
    """

    rows: slice
    doubled_keys: Float[Tensor, "row source size"]
    gates: Float[Tensor, "row source size"]
    gates_flat: Float[Tensor, "row_source size"]
    scores: Float[Tensor, " row_source"]
    key_grad_sum: Float[Tensor, "row source size"]


@final
class AdditiveSteps(AttentionSteps):
    """v . tanh(q + k) = 2 v . sigma(2q + 2k) - sum v, rows by the cacheful; gates are computed again on the way back.

    Kept for all steps, the gates would take batch x target x source x size numbers.
    """

    def __init__(self, arena: Arena, memory: Memory, steps: int, normalizer: Regularized, score: Additive) -> None:
        super().__init__(arena, memory, steps, normalizer)
        self.weight, self.energy = score.query.weight, score.energy.weight
        energy = self.energy[0].to(self.values.dtype)
        self.doubled_energy, self.fourfold_energy = 2.0 * energy, 4.0 * energy
        rows, length, size = self.keys.shape
        self.all_queries = arena.take(steps, rows, size, dtype=self.values.dtype)
        self.queries, self.query_rows = self.all_queries.unbind(STEP), as_rows(self.all_queries)
        self.grad_queries = arena.take(rows, 1, size, dtype=self.values.dtype)
        self.grad_energy = torch.zeros_like(energy)
        self.key_grad_sum = arena.take(rows, length, size, dtype=self.values.dtype).zero_()
        doubled = torch.mul(self.keys, 2.0, out=arena.take(rows, length, size, dtype=self.values.dtype))
        count = rows_at_a_time(self.keys)
        gates = arena.take(count, length, size, dtype=self.values.dtype)
        self.blocks = []
        for start in range(0, rows, count):
            part = slice(start, start + count)
            own = gates[: len(doubled[part])]
            scores = self.scores[part].view(-1)
            self.blocks.append(Block(part, doubled[part], own, own.flatten(0, 1), scores, self.key_grad_sum[part]))

    def gate(self, step: int, block: Block) -> None:
        """Compute the gates sigma(2q + 2k) of a step, for every source position of some rows."""
        torch.add(block.doubled_keys, self.query_rows[step][block.rows], out=block.gates).sigmoid_()

    def score(self, step: int, query: Float[Tensor, "row query"]) -> None:
        torch.mul(query, 2.0, out=self.queries[step])
        for block in self.blocks:
            self.gate(step, block)
            torch.mv(block.gates_flat, self.doubled_energy, out=block.scores)  # sum v cancels in the normalizer

    def grad_query(self, step: int) -> Float[Tensor, "row query"]:
        for block in self.blocks:
            self.gate(step, block)
            grad_scores = self.grad_score_rows[step][block.rows]
            self.grad_energy.addmv_(block.gates_flat.t(), grad_scores.view(-1), alpha=2.0)
            slope = block.gates.addcmul_(block.gates, block.gates, value=-1.0)  # a quarter of tanh'
            block.key_grad_sum.addcmul_(grad_scores.mT, slope)
            torch.bmm(grad_scores, slope, out=self.grad_queries[block.rows])
        return self.grad_queries[:, 0].mul_(self.fourfold_energy)

    def grad_keys(self) -> Float[Tensor, "row source key"]:
        return self.key_grad_sum * self.fourfold_energy

    def grads(self) -> Iterator[ParameterGrad]:
        yield self.energy, self.grad_energy[None]


@final
class DotSteps(AttentionSteps):
    """scale q . k: dot, scaled_dot, and general, whose keys are projected already."""

    def __init__(self, arena: Arena, memory: Memory, steps: int, normalizer: Regularized, scale: float) -> None:
        super().__init__(arena, memory, steps, normalizer)
        self.scale = scale
        rows, _, size = self.keys.shape
        self.all_queries = arena.take(steps, rows, size, dtype=self.values.dtype)
        self.queries, self.query_rows = self.all_queries.unbind(STEP), as_rows(self.all_queries)

    def score(self, step: int, query: Float[Tensor, "row query"]) -> None:
        torch.mul(query, self.scale, out=self.queries[step])
        torch.bmm(self.query_rows[step], self.transposed_keys, out=self.scores[:, None])

    def grad_query(self, step: int) -> Float[Tensor, "row query"]:
        return torch.bmm(self.grad_score_rows[step], self.keys)[:, 0].mul_(self.scale)

    def grad_keys(self) -> Float[Tensor, "row source key"]:
        return torch.bmm(self.all_grad_scores.permute(1, 2, 0), self.all_queries.transpose(0, 1))

    def grads(self) -> Iterator[ParameterGrad]:
        yield from ()


MakeSteps = Callable[[Arena, Memory, int], AttentionSteps]  # of the number of steps


def attention_steps(attention: AttentionMechanism) -> MakeSteps | None:
    """Return the constructor of an attention's steps; None for a composition whose derivative is not written out."""
    if type(attention) is not Attention or not isinstance(attention.window, Global):
        return None
    normalizer, score = attention.normalizer, attention.score
    if not isinstance(normalizer, Regularized):
        return None
    if isinstance(score, Additive):
        return partial(AdditiveSteps, normalizer=normalizer, score=score)
    if isinstance(score, Dot | General):
        return partial(DotSteps, normalizer=normalizer, scale=1.0)
    if isinstance(score, ScaledDot):
        return partial(DotSteps, normalizer=normalizer, scale=score.scale)
    return None
