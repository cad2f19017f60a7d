"""Attention pooling: the states of a sentence as one vector, by attention with a learned query."""

from typing import final

import torch
from torch import nn

from nmt.attention.attention import Attended, AttentionMechanism
from nmt.attention.shapes import Mask, States


@final
class AttentionPooling(nn.Module):
    """c = E_p[h], p the attention of one learned query u to the states h of a sentence  (Yang et al., 2016).

    Any composition of score, normalizer and window will do. As the query is the same for all sentences, `location`
    gives a position the same score in all of them, `local_p` always looks at the same relative position, and `local_m`
    at the first D + 1 tokens. u is drawn from N(0, 1/d): its length is about 1, so scores begin near their value at 0.
    """

    def __init__(self, attention: AttentionMechanism, query_size: int) -> None:
        super().__init__()
        self.attention = attention
        self.query = nn.Parameter(torch.randn(query_size) / query_size**0.5)

    def forward(self, states: States, source_mask: Mask) -> Attended:
        """Attend to the states, at least one per sentence. The target axis has length 1, for the single query."""
        memory = self.attention.project_memory(states, source_mask)
        return self.attention(self.query.expand(len(states), 1, -1), memory)
