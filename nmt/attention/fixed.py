"""No attention: the bottleneck that it was invented to remove."""

from typing import final

import torch
from torch import nn

from nmt.attention.attention import Attended, Memory
from nmt.attention.shapes import Mask, Past, Query, States, Step


@final
class FixedContext(nn.Module):
    """c = [forward h_S; backward h_1] at every step: a source in one vector, whatever its length.

    The encoder-decoder of Cho et al. (2014) and Sutskever et al. (2014). Called as an attention is; as it looks
    nowhere, its weights are uniform.
    """

    stepwise = False

    def project_memory(self, states: States, source_mask: Mask) -> Memory:
        """Join the states in which each direction has read the whole sentence; every value is their join."""
        size = states.shape[2] // 2
        last = (source_mask.sum(dim=1) - 1)[:, None, None].expand(-1, 1, size)
        whole = torch.cat((states[..., :size].gather(1, last), states[:, :1, size:]), dim=-1)
        return Memory(states[..., :0], whole.expand(-1, states.shape[1], -1), source_mask)

    def forward(self, query: Query, memory: Memory, step: Step = 0, past: Past | None = None) -> Attended:
        mask = memory.mask.to(memory.values.dtype)
        weights = (mask / mask.sum(dim=1, keepdim=True))[:, None].expand(-1, query.shape[1], -1)
        context = memory.values[:, :1].expand(-1, query.shape[1], -1)
        return Attended(context, weights, torch.zeros_like(weights))

    def __str__(self) -> str:
        return "none: one vector a sentence"
