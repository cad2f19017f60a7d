"""No attention: the fixed-vector model that attention replaced."""

from typing import final

import torch

from nmt.attention.attention import Attended, AttentionMechanism, Memory
from nmt.attention.shapes import Mask, Past, Position, Query, States


@final
class FixedContext(AttentionMechanism):
    """c = [forward h_S; backward h_1] at every step: one vector, whatever the sentence's length S.

    The encoder-decoder of Cho et al. (2014) and Sutskever et al. (2014), with the interface of attention: weights are
    uniform over the real tokens, scores are 0.
    """

    def project_memory(self, states: States, source_mask: Mask) -> Memory:
        """Join the last state of each direction; every value is this vector, and keys have size 0.

        `states` are those of a bidirectional encoder, [forward; backward], halves of equal size.
        """
        size = states.shape[2] // 2
        last = (source_mask.sum(dim=1) - 1)[:, None, None].expand(-1, 1, size)
        final_states = torch.cat((states[..., :size].gather(1, last), states[:, :1, size:]), dim=-1)
        return Memory(states[..., :0], final_states.expand(-1, states.shape[1], -1), source_mask)

    def forward(self, query: Query, memory: Memory, position: Position = 0, past: Past | None = None) -> Attended:
        mask = memory.mask.to(memory.values.dtype)
        weights = (mask / mask.sum(dim=1, keepdim=True))[:, None].expand(-1, query.shape[1], -1)
        context = memory.values[:, :1].expand(-1, query.shape[1], -1)
        return Attended(context, weights, torch.zeros_like(weights))

    def __str__(self) -> str:
        return "none: one vector per sentence"
