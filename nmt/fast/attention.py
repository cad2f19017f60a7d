"""Attention step by step, with the derivatives of its commonest members; any other differentiates itself."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.attention.attention import Attention, AttentionMechanism, Memory
from nmt.attention.normalizers import Regularized
from nmt.attention.scores import Additive, Dot, General, ScaledDot
from nmt.attention.windows import Global
from nmt.fast.arena import Arena
from nmt.fast.cells import Gradient
from nmt.fast.product import STEP


class AttentionSteps(ABC):
    """Fills `weights` and `contexts`, step by step; `weight`, if any, maps the hidden vector to the query."""

    weight: Tensor | None = None

    def __init__(self, arena: Arena, memory: Memory, steps: int) -> None:
        self.keys, self.values, self.mask = memory
        rows, length, size = self.values.shape
        self.all_weights = arena.take(steps, rows, length, dtype=self.values.dtype)
        self.all_contexts = arena.take(steps, rows, size, dtype=self.values.dtype)
        self.weights, self.contexts = self.all_weights.unbind(STEP), self.all_contexts.unbind(STEP)

    @abstractmethod
    def forward(self, step: int, query: Float[Tensor, "row query"]) -> Float[Tensor, "row value"]:
        """Attend; return the context."""

    @abstractmethod
    def backward(
        self, step: int, by_context: Float[Tensor, "row value"], by_weights: Float[Tensor, "row source"] | None
    ) -> Float[Tensor, "row query"]:
        """Return the gradient of the query, which lives until the next call."""

    @abstractmethod
    def memory_gradients(self) -> tuple[Tensor, Tensor]:
        """Return the gradients of keys and values."""

    @abstractmethod
    def gradients(self) -> Iterator[Gradient]:
        """Yield the gradients of the attention's parameters, but for `weight`."""


class ClosedForm(AttentionSteps):
    """A score whose derivative is written out, with a normalizer whose derivative follows from its weights."""

    def __init__(self, arena: Arena, memory: Memory, steps: int, normalizer: Regularized) -> None:
        super().__init__(arena, memory, steps)
        self.normalizer = normalizer
        self.forbidden = ~self.mask
        self.all_by_scores = arena.take(*self.all_weights.shape, dtype=self.values.dtype)
        self.all_by_contexts = arena.take(*self.all_contexts.shape, dtype=self.values.dtype)
        self.by_scores, self.by_contexts = self.all_by_scores.unbind(STEP), self.all_by_contexts.unbind(STEP)
        self.scores = arena.take(*self.values.shape[:2], dtype=self.values.dtype)
        self.transposed = self.values.transpose(1, 2)
        # Of a step, as matrices of one row a sentence: what batched products take.
        self.weight_rows, self.context_rows = by_row(self.all_weights), by_row(self.all_contexts)
        self.by_score_rows, self.by_context_rows = by_row(self.all_by_scores), by_row(self.all_by_contexts)

    @abstractmethod
    def score(self, step: int, query: Float[Tensor, "row query"]) -> None:
        """Write the scores of the query against every key to `scores`."""

    @abstractmethod
    def by_query(self, step: int) -> Float[Tensor, "row query"]:
        """Return the gradient of the query from that of the step's scores, and take note of the keys'."""

    @abstractmethod
    def by_keys(self) -> Float[Tensor, "row source key"]:
        """Return the gradient of the keys, all steps noted."""

    def forward(self, step: int, query: Float[Tensor, "row query"]) -> Float[Tensor, "row value"]:
        self.score(step, query)
        weights = self.normalizer(self.scores.masked_fill_(self.forbidden, float("-inf")))
        self.weights[step].copy_(weights)
        torch.bmm(self.weight_rows[step], self.values, out=self.context_rows[step])
        return self.contexts[step]

    def backward(
        self, step: int, by_context: Float[Tensor, "row value"], by_weights: Float[Tensor, "row source"] | None
    ) -> Float[Tensor, "row query"]:
        self.by_contexts[step].copy_(by_context)
        found = torch.bmm(self.by_context_rows[step], self.transposed)[:, 0]
        if by_weights is not None:
            found += by_weights
        self.by_scores[step].copy_(self.normalizer.gradient(self.weights[step], found))
        return self.by_query(step)

    def memory_gradients(self) -> tuple[Tensor, Tensor]:
        by_values = torch.bmm(self.all_weights.permute(1, 2, 0), self.all_by_contexts.transpose(0, 1))
        return self.by_keys(), by_values


CACHED = 2**21  # numbers, 8 MiB of fp32; with keys and sums beside them 24 MiB, where 32 MiB of cache were best used


def rows_at_a_time(keys: Float[Tensor, "row source size"]) -> int:
    """Return how many rows of keys to pass over again and again: on a CPU, as many as stay in its cache."""
    rows, length, size = keys.shape
    if keys.device.type != "cpu":
        return rows
    num_blocks = min(rows, max(1, -(-rows * length * size // CACHED)))
    return -(-rows // num_blocks)


def by_row(x: Float[Tensor, "step row size"]) -> tuple[Float[Tensor, "row 1 size"], ...]:
    """Return each step's rows, each a matrix by itself."""
    return x.unsqueeze(2).unbind(0)


class Block(NamedTuple):
    """Some rows of additive attention: their keys, doubled; gate and scores of a step; what the keys' gradient sums."""

    rows: slice
    doubled: Float[Tensor, "row source size"]
    gate: Float[Tensor, "row source size"]
    pairs: Float[Tensor, "row_source size"]
    scores: Float[Tensor, " row_source"]
    noted: Float[Tensor, "row source size"]


@final
class AdditiveSteps(ClosedForm):
    """v . tanh(q + k), as 2 v . sigma(2q + 2k) - sum v without the last term, to which no regularized argmax attends.

    What is as large as row x source x size lives for one step only, for as many rows at a time as fit a CPU's cache,
    and is computed again on the way back.
    """

    def __init__(self, arena: Arena, memory: Memory, steps: int, normalizer: Regularized, score: Additive) -> None:
        super().__init__(arena, memory, steps, normalizer)
        self.weight = score.query.weight
        self.energy = score.energy.weight
        self.doubled_energy, self.fourfold_energy = 2.0 * self.energy[0], 4.0 * self.energy[0]
        keys, dtype = self.keys, self.values.dtype
        rows, _, size = keys.shape
        doubled = torch.mul(keys, 2.0, out=arena.take(*keys.shape, dtype=dtype))
        queries = arena.take(steps, rows, size, dtype=dtype)
        self.queries, self.query_rows = queries.unbind(STEP), by_row(queries)
        self.noted = arena.take(*keys.shape, dtype=dtype).zero_()
        self.by_energy = torch.zeros_like(self.energy[0])
        self.by_queries = arena.take(rows, 1, size, dtype=dtype)
        at_a_time = rows_at_a_time(keys)
        gate = arena.take(at_a_time, *keys.shape[1:], dtype=dtype)
        self.blocks: list[Block] = []
        for start in range(0, rows, at_a_time):
            block = slice(start, start + at_a_time)
            part = gate[: len(doubled[block])]
            scores = self.scores[block].view(-1)
            self.blocks.append(Block(block, doubled[block], part, part.flatten(0, 1), scores, self.noted[block]))

    def open(self, step: int, block: Block) -> None:
        """Compute the gate sigma(2q + 2k) of a step, for every source position of some rows."""
        torch.add(block.doubled, self.query_rows[step][block.rows], out=block.gate).sigmoid_()

    def score(self, step: int, query: Float[Tensor, "row query"]) -> None:
        torch.mul(query, 2.0, out=self.queries[step])
        for block in self.blocks:
            self.open(step, block)
            torch.mv(block.pairs, self.doubled_energy, out=block.scores)

    def by_query(self, step: int) -> Float[Tensor, "row query"]:
        for block in self.blocks:
            self.open(step, block)
            by_scores = self.by_score_rows[step][block.rows]
            self.by_energy.addmv_(block.pairs.t(), by_scores.view(-1), alpha=2.0)
            slope = block.gate.addcmul_(block.gate, block.gate, value=-1.0)  # a quarter of tanh'
            block.noted.addcmul_(by_scores.mT, slope)
            torch.bmm(by_scores, slope, out=self.by_queries[block.rows])
        return self.by_queries[:, 0].mul_(self.fourfold_energy)

    def by_keys(self) -> Float[Tensor, "row source key"]:
        return self.noted * self.fourfold_energy

    def gradients(self) -> Iterator[Gradient]:
        yield self.energy, self.by_energy[None]


@final
class DotSteps(ClosedForm):
    """scale q . k: dot, scaled_dot, and general, whose keys are projected already."""

    def __init__(self, arena: Arena, memory: Memory, steps: int, normalizer: Regularized, scale: float) -> None:
        super().__init__(arena, memory, steps, normalizer)
        self.scale = scale
        rows, _, size = self.keys.shape
        self.all_queries = arena.take(steps, rows, size, dtype=self.values.dtype)
        self.queries, self.query_rows = self.all_queries.unbind(STEP), by_row(self.all_queries)
        self.transposed_keys, self.score_rows = self.keys.transpose(1, 2), self.scores[:, None]

    def score(self, step: int, query: Float[Tensor, "row query"]) -> None:
        torch.mul(query, self.scale, out=self.queries[step])
        torch.bmm(self.query_rows[step], self.transposed_keys, out=self.score_rows)

    def by_query(self, step: int) -> Float[Tensor, "row query"]:
        return torch.bmm(self.by_score_rows[step], self.keys)[:, 0].mul_(self.scale)

    def by_keys(self) -> Float[Tensor, "row source key"]:
        return torch.bmm(self.all_by_scores.permute(1, 2, 0), self.all_queries.transpose(0, 1))

    def gradients(self) -> Iterator[Gradient]:
        yield from ()


@final
class AnySteps(AttentionSteps):
    """Any other composition: autograd differentiates each step by itself."""

    def __init__(
        self, arena: Arena, memory: Memory, steps: int, attention: AttentionMechanism, kind: torch.dtype
    ) -> None:
        super().__init__(arena, memory, steps)
        self.attention = attention
        self.kind = kind
        self.parameters = [parameter for parameter in attention.parameters() if parameter.requires_grad]
        self.leaves = Memory(
            memory.keys.detach().requires_grad_(), memory.values.detach().requires_grad_(), memory.mask
        )
        self.graphs: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        self.sums: list[Tensor | None] = [None, None, *(None for _ in self.parameters)]

    def forward(self, step: int, query: Float[Tensor, "row query"]) -> Float[Tensor, "row value"]:
        cast = torch.autocast(query.device.type, self.kind, enabled=self.kind != query.dtype)
        with torch.enable_grad(), cast:
            leaf = query[:, None].clone().requires_grad_()
            attended = self.attention(leaf, self.leaves, step)
        self.graphs[step] = leaf, attended.context, attended.weights
        self.weights[step].copy_(attended.weights.detach()[:, 0])
        return self.contexts[step].copy_(attended.context.detach()[:, 0])

    def backward(
        self, step: int, by_context: Float[Tensor, "row value"], by_weights: Float[Tensor, "row source"] | None
    ) -> Float[Tensor, "row query"]:
        leaf, context, weights = self.graphs.pop(step)
        outputs, gradients = [context], [by_context[:, None].to(context.dtype)]
        if by_weights is not None and weights.requires_grad:  # those of a fixed context are constant
            outputs, gradients = [context, weights], [*gradients, by_weights[:, None].to(weights.dtype)]
        inputs = (leaf, self.leaves.keys, self.leaves.values, *self.parameters)
        by_query, *others = torch.autograd.grad(outputs, inputs, gradients, allow_unused=True)
        for index, gradient in enumerate(others):
            known = self.sums[index]
            if gradient is not None:
                self.sums[index] = gradient.clone() if known is None else known.add_(gradient)
        return torch.zeros_like(leaf)[:, 0] if by_query is None else by_query[:, 0]

    def memory_gradients(self) -> tuple[Tensor, Tensor]:
        by_keys, by_values = self.sums[:2]
        return (
            torch.zeros_like(self.keys) if by_keys is None else by_keys,
            torch.zeros_like(self.values) if by_values is None else by_values,
        )

    def gradients(self) -> Iterator[Gradient]:
        for parameter, gradient in zip(self.parameters, self.sums[2:], strict=True):
            if gradient is not None:
                yield parameter, gradient


def attention_steps(
    arena: Arena, attention: AttentionMechanism, memory: Memory, steps: int, kind: torch.dtype
) -> AttentionSteps:
    """Choose how to run an attention step by step."""
    make = closed_form(attention)
    return AnySteps(arena, memory, steps, attention, kind) if make is None else make(arena, memory, steps)


def closed_form(attention: AttentionMechanism) -> Callable[[Arena, Memory, int], ClosedForm] | None:
    """Return what makes the steps of an attention whose derivative is written out; None leaves it to autograd."""
    if type(attention) is not Attention or not isinstance(attention.window, Global):
        return None
    match attention.normalizer, attention.score:
        case Regularized() as normalizer, Additive() as score:
            return partial(AdditiveSteps, normalizer=normalizer, score=score)
        case Regularized() as normalizer, ScaledDot() as score:
            return partial(DotSteps, normalizer=normalizer, scale=score.scale)
        case Regularized() as normalizer, Dot() | General():
            return partial(DotSteps, normalizer=normalizer, scale=1.0)
    return None
