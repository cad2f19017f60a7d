"""No attention: the bottleneck that it was invented to remove."""

from typing import final

import torch
from torch import nn

from nmt.attention.attention import Attended, Memory
from nmt.attention.shapes import Mask, Past, Query, States, Step


@final
class FixedContext(nn.Module):
    """The same context at every step: a source in one vector, whatever its length.

    The encoder-decoder of Cho et al. (2014) and Sutskever et al. (2014). It is called as an attention is; as it
    selects nothing, its weights are uniform over the real tokens.
    """

    stepwise = False

    def project_memory(self, states: States, source_mask: Mask) -> Memory:
        """Take the one vector for a value; `states` holds it at every source position."""
        return Memory(states[..., :0], states, source_mask)

    def forward(self, query: Query, memory: Memory, step: Step = 0, past: Past | None = None) -> Attended:
        mask = memory.mask.to(memory.values.dtype)
        weights = (mask / mask.sum(dim=1, keepdim=True))[:, None].expand(-1, query.shape[1], -1)
        context = memory.values[:, :1].expand(-1, query.shape[1], -1)
        return Attended(context, weights, torch.zeros_like(weights))

    def __str__(self) -> str:
        return "none: one vector a sentence"
