"""Attention as the composition score x normalizer x window: the only place where scores are masked."""

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.attention.normalizers import Normalizer, SampledAttention
from nmt.attention.scores import Score
from nmt.attention.shapes import Mask, Past, Query, Scores, States, Step
from nmt.attention.windows import Window


class Memory(NamedTuple):
    """What can be attended to: projected once a sentence, the same at every step."""

    keys: Float[Tensor, "batch source key"]
    values: Float[Tensor, "batch source value"]
    mask: Mask

    def keep(self, sentences: Tensor) -> "Memory":
        """Return the memory of some of the sentences (indices into the batch axis)."""
        return Memory(self.keys[sentences], self.values[sentences], self.mask[sentences])


class Attended(NamedTuple):
    """The result of a query: the expectation of the values under the weights, and how those were drawn, if at random.

    `past` is what an attention that remembers wants to be given with the next query (see `Covering`).
    """

    context: Float[Tensor, "batch target value"]
    weights: Float[Tensor, "batch target source"]
    scores: Scores
    sampled: SampledAttention = SampledAttention()
    past: Past | None = None


class Attention(nn.Module):
    """context = E_p[values], p = normalizer(score(query, keys)) on the window's support.

    A query has a target axis, `[batch, target, query]`; one decoding step is target = 1, and in beam search
    the hypotheses of a sentence are its targets, so that memory is never repeated. `step` is the target position
    of all queries, or a tensor with that of each where several positions are attended from at once.
    """

    def __init__(self, score: Score, normalizer: Normalizer, window: Window) -> None:
        super().__init__()
        self.score = score
        self.normalizer = normalizer
        self.window = window

    @property
    def stepwise(self) -> bool:
        """Whether training must go step by step: a step draws at random, or is told of the last."""
        return self.normalizer.draws

    def __str__(self) -> str:
        return " x ".join(type(part).__name__ for part in (self.score, self.normalizer, self.window))

    def project_memory(self, states: States, source_mask: Mask) -> Memory:
        """Project the encoder's states into keys and values, once a sentence."""
        return Memory(self.score.project(states, source_mask), states, source_mask)

    def forward(self, query: Query, memory: Memory, step: Step = 0, past: Past | None = None) -> Attended:
        return self.attend(self.score(query, memory.keys), query, memory, step)

    def attend(self, scores: Scores, query: Query, memory: Memory, step: Step) -> Attended:
        """Normalize scores on the window's support and form the context."""
        support, taper = self.window(query, memory.mask, step)
        allowed = scores.masked_fill(~support, float("-inf"))
        weights = self.normalizer(allowed)
        sampled = self.normalizer.sampled(allowed, weights)
        if taper is not None:
            weights = weights * taper
        return Attended(weights @ memory.values, weights, scores, sampled)


@final
class MultiHead(nn.Module):
    """context = W [context_1; ...; context_H]: attentions side by side, each on a slice  (Vaswani et al., 2017).

    Query, states and values are cut into equal slices, after their projections where these are learned; with the
    identity for a projection the contexts are only joined again. Weights and scores are the means over the heads.
    Heads draw independently, so their log-probabilities and entropies add up.
    """

    def __init__(
        self, heads: Sequence[Attention], query: nn.Module, key: nn.Module, value: nn.Module, output: nn.Module
    ) -> None:
        super().__init__()
        self.heads = nn.ModuleList(heads)
        self.query = query
        self.key = key
        self.value = value
        self.output = output

    @property
    def stepwise(self) -> bool:
        """As `Attention.stepwise`."""
        return any(head.stepwise for head in self.heads if isinstance(head, Attention))

    def __str__(self) -> str:
        return f"{len(self.heads)} heads of {self.heads[0]}"

    def project_memory(self, states: States, source_mask: Mask) -> Memory:
        """Project the encoder's states into the keys and values of all heads, side by side, once a sentence."""
        keys = []
        for head, share in zip(self.heads, self._cut(self.key(states)), strict=True):
            assert isinstance(head, Attention)
            keys.append(head.project_memory(share, source_mask).keys)
        return Memory(torch.cat(keys, dim=-1), self.value(states), source_mask)

    def forward(self, query: Query, memory: Memory, step: Step = 0, past: Past | None = None) -> Attended:
        shares = zip(*(self._cut(whole) for whole in (self.query(query), memory.keys, memory.values)), strict=True)
        parts = [
            head(own_query, Memory(keys, values, memory.mask), step)
            for head, (own_query, keys, values) in zip(self.heads, shares, strict=True)
        ]
        contexts, weights, scores, chances, _ = zip(*parts, strict=True)
        return Attended(
            self.output(torch.cat(contexts, dim=-1)),
            torch.stack(weights).mean(dim=0),
            torch.stack(scores).mean(dim=0),
            SampledAttention.join(chances).map(lambda x: x.sum(dim=0)),
        )

    def _cut(self, whole: Float[Tensor, "batch length size"]) -> tuple[Tensor, ...]:
        return whole.chunk(len(self.heads), dim=-1)
