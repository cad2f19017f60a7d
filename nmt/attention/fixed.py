"""No attention: the fixed-vector model that attention replaced."""

from typing import final

import torch

from nmt.attention.attention import Attended, AttentionMechanism, Memory
from nmt.attention.shapes import Mask, Past, Position, Query, States


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
