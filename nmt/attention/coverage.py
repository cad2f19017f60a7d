"""Attention that knows how much it has attended to each word."""

from typing import final

import torch
from torch import nn

from nmt.attention.attention import Attended, Attention, Memory
from nmt.attention.normalizers import Normalizer
from nmt.attention.scores import Additive
from nmt.attention.settings import Settings
from nmt.attention.shapes import Mask, Past, Query, States, Step
from nmt.attention.windows import Window

COVERAGES = ("none", "accumulated", "fertility")
MOST_WORDS = 2.0  # N: the largest fertility, as in the paper's experiments


@final
class Covering(Attention):
    """e_j = v . tanh(Wq q + Wk k_j + w C_j + b), C_j = sum of the past p_j / Phi_j  (Tu et al., 2016).

    Phi_j is the number of target words that source word j is expected to make: 1, or where `fertility` is set
    N sigma(u . h_j), learned from the encoder's state.
    """

    def __init__(
        self, score: Additive, normalizer: Normalizer, window: Window, settings: Settings, *, fertility: bool
    ) -> None:
        super().__init__(score, normalizer, window)
        self.covered = nn.Linear(1, settings.size, bias=False)
        self.fertility = nn.Linear(settings.state_size, 1, bias=False) if fertility else None

    @property
    def stepwise(self) -> bool:
        return True

    def project_memory(self, states: States, source_mask: Mask) -> Memory:
        """Project the states once a sentence; the last number of a key is its 1 / Phi."""
        memory = super().project_memory(states, source_mask)
        share = torch.ones_like(memory.keys[..., :1])
        if self.fertility is not None:
            share = share / (MOST_WORDS * self.fertility(states).sigmoid())
        return memory._replace(keys=torch.cat((memory.keys, share), dim=-1))

    def forward(self, query: Query, memory: Memory, step: Step = 0, past: Past | None = None) -> Attended:
        keys, share = memory.keys[..., :-1], memory.keys[..., -1]
        if past is None:
            past = torch.zeros_like(share)[:, None].expand(-1, query.shape[1], -1)
        assert isinstance(self.score, Additive)
        scores = self.score.compare(query, keys[:, None] + self.covered(past[..., None]))
        attended = self.attend(scores, query, memory, step)
        return attended._replace(past=past + attended.weights * share[:, None])

    def __str__(self) -> str:
        return f"{super().__str__()}, covering"
