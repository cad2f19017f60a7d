"""Attention as the composition score x normalizer x window: the only place where scores are masked."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.attention.normalizers import Normalizer, SampledAttention
from nmt.attention.scores import Score
from nmt.attention.shapes import Mask, Past, Position, Query, Scores, States
from nmt.attention.windows import Window


class Memory(NamedTuple):
    """Keys, values and mask of encoded sentences: computed once, read at every decoding step."""

    keys: Float[Tensor, "batch source key"]
    values: Float[Tensor, "batch source value"]
    mask: Mask

    def keep(self, sentences: Tensor) -> "Memory":
        """Return the memory of some of the sentences (indices into the batch axis)."""
        return Memory(self.keys[sentences], self.values[sentences], self.mask[sentences])


class Attended(NamedTuple):
    """The result of attending, for each query.

    Attributes:
        context: the expectation of the values under the weights.
        weights: p, multiplied by the window's taper; exactly 0 on padding and outside the window.
        scores: as the score gives them, before masking.
        sampled: log-probability and entropy of weights that were sampled in training.
        past: to be passed on with the next query, by an attention with coverage; otherwise None.
    """

    context: Float[Tensor, "batch target value"]
    weights: Float[Tensor, "batch target source"]
    scores: Scores
    sampled: SampledAttention = SampledAttention()
    past: Past | None = None


class AttentionMechanism(nn.Module, ABC):
    """The interface between attention and decoder. `str()` gives its description in the model summary."""

    stepwise = False  # whether training must go step by step: weights are sampled, or depend on those of earlier steps

    @abstractmethod
    def project_memory(self, states: States, source_mask: Mask) -> Memory:
        """Project the encoder's states into keys and values, once per sentence."""

    @abstractmethod
    def forward(self, query: Query, memory: Memory, position: Position = 0, past: Past | None = None) -> Attended:
        """Attend with every query to the memory of its sentence.

        Queries always have a target axis. In one decoding step its length is 1; in beam search it is the number of
        hypotheses of a sentence, so that memory is never repeated.

        Args:
            query: the decoder's states.
            memory: the result of `project_memory`.
            position: target position of the queries, from 0.
            past: `Attended.past` of the previous step; None at the first.
        """


class Attention(AttentionMechanism):
    """context = E_p[values], p = normalizer(score(query, keys)) on the window's support."""

    def __init__(self, score: Score, normalizer: Normalizer, window: Window) -> None:
        super().__init__()
        self.score = score
        self.normalizer = normalizer
        self.window = window
        self.stepwise = normalizer.is_sampled

    def project_memory(self, states: States, source_mask: Mask) -> Memory:
        return Memory(self.score.project(states, source_mask), states, source_mask)

    def forward(self, query: Query, memory: Memory, position: Position = 0, past: Past | None = None) -> Attended:
        return self.attend(self.score(query, memory.keys), query, memory, position)

    def attend(self, scores: Scores, query: Query, memory: Memory, position: Position) -> Attended:
        """Normalize scores on the window's support and compute the context."""
        support, taper = self.window(query, memory.mask, position)
        allowed = scores.masked_fill(~support, float("-inf"))
        weights = self.normalizer(allowed)
        sampled = self.normalizer.sampled(allowed, weights)
        if taper is not None:
            weights = weights * taper
        return Attended(self.expectation(weights, memory.values), weights, scores, sampled)

    def expectation(self, weights: Scores, values: States) -> Float[Tensor, "batch target value"]:
        """Return the expectation of the values under the weights of each query."""
        return weights @ values

    def __str__(self) -> str:
        return " x ".join(type(part).__name__ for part in (self.score, self.normalizer, self.window))


@final
class MultiHead(AttentionMechanism):
    """context = W [context_1; ...; context_H], head h attending with its slice of query, keys and values.

    Query, states and values are projected (or not: the identity) and cut into H equal slices  (Vaswani et al., 2017).
    Weights and scores are the means over the heads. Heads sample independently, so their log-probabilities and
    entropies add up.
    """

    def __init__(
        self, heads: Sequence[Attention], query: nn.Module, key: nn.Module, value: nn.Module, output: nn.Module
    ) -> None:
        super().__init__()
        self.heads: Sequence[Attention] = nn.ModuleList(heads)  # type: ignore[assignment]
        self.query = query
        self.key = key
        self.value = value
        self.output = output
        self.stepwise = any(head.stepwise for head in heads)

    def project_memory(self, states: States, source_mask: Mask) -> Memory:
        """Project the states into the keys and values of all heads, concatenated."""
        slices = zip(self.heads, self._slices(self.key(states)), strict=True)
        keys = [head.project_memory(part, source_mask).keys for head, part in slices]
        return Memory(torch.cat(keys, dim=-1), self.value(states), source_mask)

    def forward(self, query: Query, memory: Memory, position: Position = 0, past: Past | None = None) -> Attended:
        slices = [self._slices(tensor) for tensor in (self.query(query), memory.keys, memory.values)]
        attended = [
            head(head_query, Memory(keys, values, memory.mask), position)
            for head, head_query, keys, values in zip(self.heads, *slices, strict=True)
        ]
        contexts, weights, scores, sampled, _ = zip(*attended, strict=True)
        return Attended(
            self.output(torch.cat(contexts, dim=-1)),
            torch.stack(weights).mean(dim=0),
            torch.stack(scores).mean(dim=0),
            SampledAttention.join(sampled).map(lambda per_head: per_head.sum(dim=0)),
        )

    def _slices(self, tensor: Float[Tensor, "batch length size"]) -> tuple[Tensor, ...]:
        return tensor.chunk(len(self.heads), dim=-1)

    def __str__(self) -> str:
        return f"{len(self.heads)} heads of {self.heads[0]}"


@final
class FixedContext(AttentionMechanism):
    """The same context at every step: the sentence in one vector, whatever its length.

    The encoder-decoder of Cho et al. (2014) and Sutskever et al. (2014), with the interface of attention: weights are
    uniform over the real tokens, scores are 0.
    """

    def project_memory(self, states: States, source_mask: Mask) -> Memory:
        """Return the one vector as value; `states` holds it at every source position. Keys have size 0."""
        return Memory(states[..., :0], states, source_mask)

    def forward(self, query: Query, memory: Memory, position: Position = 0, past: Past | None = None) -> Attended:
        mask = memory.mask.to(memory.values.dtype)
        weights = (mask / mask.sum(dim=1, keepdim=True))[:, None].expand(-1, query.shape[1], -1)
        context = memory.values[:, :1].expand(-1, query.shape[1], -1)
        return Attended(context, weights, torch.zeros_like(weights))

    def __str__(self) -> str:
        return "none: one vector per sentence"
