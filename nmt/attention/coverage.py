"""Attention with coverage: the score is given the attention that each source token has received so far."""

from typing import final

import torch
from torch import nn

from nmt.attention.attention import Attended, Attention, Memory
from nmt.attention.normalizers import Normalizer
from nmt.attention.scores import Additive
from nmt.attention.settings import AttentionSettings
from nmt.attention.shapes import Mask, Past, Position, Query, States, at_least_fp32
from nmt.attention.windows import Window

COVERAGES = ("none", "accumulated", "fertility")
MAX_FERTILITY = 2.0  # N of the paper's experiments


@final
class CoverageAttention(Attention):
    """e_j = v . tanh(Wq q + Wk h_j + w C_j + b), C_j = sum of the past p_j / Phi_j  (Tu et al., 2016).

    Phi_j is the fertility of source token j, the number of target tokens it is expected to produce: 1, or with the
    coverage `fertility` N sigmoid(u . h_j), with u learned.
    """

    score: Additive

    def __init__(self, score: Additive, normalizer: Normalizer, window: Window, settings: AttentionSettings) -> None:
        super().__init__(score, normalizer, window)
        self.covered = nn.Linear(1, settings.size, bias=False)
        has_fertility = settings.coverage == "fertility"
        self.fertility = nn.Linear(settings.state_size, 1, bias=False) if has_fertility else None
        self.stepwise = True

    def project_memory(self, states: States, source_mask: Mask) -> Memory:
        """Project the states; the last element of a key, [batch, source, size + 1], is 1 / Phi."""
        memory = super().project_memory(states, source_mask)
        inverse = torch.ones_like(memory.keys[..., :1])
        if self.fertility is not None:
            inverse = inverse / (MAX_FERTILITY * self.fertility(states).sigmoid())
        return memory._replace(keys=torch.cat((memory.keys, inverse), dim=-1))

    def forward(self, query: Query, memory: Memory, position: Position = 0, past: Past | None = None) -> Attended:
        keys, inverse = memory.keys[..., :-1], memory.keys[:, None, :, -1]
        if past is None:
            # Not in 16 bits, in which small weights added to a large sum are lost.
            past = at_least_fp32(torch.zeros_like(inverse)).expand(-1, query.shape[1], -1)
        scores = self.score.score_pairs(query, keys[:, None] + self.covered(past[..., None]))
        attended = self.attend(scores, query, memory, position)
        return attended._replace(past=past + attended.weights * inverse)

    def __str__(self) -> str:
        return f"{super().__str__()}, covering"
