"""Every composition score x normalizer x window, small enough for loops."""

import itertools
import math

import torch

from nmt.attention.attention import Attention, Memory, MultiHead
from nmt.attention.build import build_attention
from nmt.attention.normalizers import NORMALIZERS
from nmt.attention.scores import SCORES
from nmt.attention.settings import AttentionSettings
from nmt.attention.windows import WINDOWS, Global, LocalMonotonic, LocalPredictive, Window

SIZE = 6
# Small, as a window wider than the sentence would hide mistakes; few bases, so that positions have to share.
OPTIONS = {
    "query_size": SIZE,
    "state_size": SIZE,
    "size": 4,
    "basis": "canonical",
    "num_basis": 5,
    "temperature": 0.7,
    "soft_share": 0.0,
    "radius": 1,
    "num_heads": 1,
    "coverage": "none",
    "projection": "identity",
}
COMPOSITIONS = list(itertools.product([*SCORES, "location:radial"], NORMALIZERS, WINDOWS))


def small(**changes) -> AttentionSettings:
    return AttentionSettings(**{**OPTIONS, **changes})


def build(composition: tuple[str, str, str], **changes):
    """Build a composition with random parameters; `location:radial` is location with that basis."""
    torch.manual_seed(0)
    score, normalizer, window = composition
    score, _, basis = score.partition(":")
    attention = build_attention(score, normalizer, window, small(basis=basis or "canonical", **changes))
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return attention.double().eval()


def mask_of(lengths: list[int]) -> torch.Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def random_states(lengths: list[int], seed: int = 1, size: int = SIZE) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(lengths), max(lengths), size, dtype=torch.float64, generator=generator)


def random_query(lengths: list[int], targets: int, seed: int = 2, size: int = SIZE) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(lengths), targets, size, dtype=torch.float64, generator=generator)


def random_memory(attention: Attention | MultiHead, lengths: list[int]) -> Memory:
    return attention.project_memory(random_states(lengths), mask_of(lengths))


def center_of(window: Window, query: torch.Tensor, length: int, step: int) -> float:
    if isinstance(window, LocalMonotonic):
        return min(step, length - 1)
    assert isinstance(window, LocalPredictive)
    energy = (window.position.weight[0] @ torch.tanh(window.query.weight @ query)).item()
    return length / (1 + math.exp(-energy / math.sqrt(window.position.in_features)))


def seen(window: Window, query: torch.Tensor, lengths: list[int], step: torch.Tensor) -> torch.Tensor:
    """The window's support, position by position."""
    rows = torch.zeros(len(lengths), query.shape[1], max(lengths), dtype=torch.bool)
    for b, length in enumerate(lengths):
        for t in range(query.shape[1]):
            for s in range(length):
                if isinstance(window, Global):
                    rows[b, t, s] = True
                else:
                    center = center_of(window, query[b, t], length, int(step[t]))
                    rows[b, t, s] = center - window.radius <= s <= center + window.radius
    return rows
