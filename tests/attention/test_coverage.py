"""Attention with coverage, against a loop."""

import numpy as np
import pytest
import torch

from nmt.attention.build import build_attention
from nmt.attention.coverage import MAX_FERTILITY
from nmt.errors import UserError
from tests.attention.compositions import small

SIZES = {"query_size": 4, "state_size": 6, "size": 5}


def covering(kind: str, **changes):
    torch.manual_seed(0)
    attention = build_attention(
        "additive", "softmax", "global", small(**SIZES, coverage=kind, temperature=1.0, **changes)
    )
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return attention.double()


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    states = torch.randn(2, 5, 6, dtype=torch.float64, generator=generator)
    queries = torch.randn(2, 3, 4, dtype=torch.float64, generator=generator)
    return states, queries, torch.tensor([[True] * 5, [True] * 3 + [False] * 2])


def test_coverage_adds_up_under_autocast():
    """In 16 bits a sum of hundreds no longer grows by small weights."""
    attention = covering("accumulated").float()
    states, mask = torch.randn(1, 300, 6), torch.ones(1, 300, dtype=torch.bool)
    past = None
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        memory = attention.project_memory(states, mask)
        for step in range(300):
            past = attention(torch.randn(1, 1, 4), memory, step, past).past
    assert past.dtype == torch.float32
    assert past.sum().item() == pytest.approx(300, rel=0.005)


@pytest.mark.parametrize("kind", ["accumulated", "fertility"])
def test_equals_a_loop_over_words(kind: str):
    attention = covering(kind)
    states, queries, mask = inputs()
    memory, past = attention.project_memory(states, mask), None
    covered = np.zeros((2, 5))
    score, arrays = attention.score, {}
    for name, p in attention.named_parameters():
        arrays[name] = p.detach().numpy()
    for step in range(3):
        attended = attention(queries[:, step : step + 1], memory, step, past)
        past = attended.past
        for row in range(2):
            length = int(mask[row].sum())
            energies = []
            for word in range(length):
                inner = (
                    arrays["score.query.weight"] @ queries[row, step].numpy()
                    + arrays["score.key.weight"] @ states[row, word].numpy()
                    + arrays["score.key.bias"]
                    + arrays["covered.weight"][:, 0] * covered[row, word]
                )
                energies.append(arrays["score.energy.weight"][0] @ np.tanh(inner))
            weights = np.exp(energies) / np.exp(energies).sum()
            np.testing.assert_allclose(attended.weights[row, 0, :length].detach(), weights, rtol=1e-10)
            for word in range(length):
                fertility = 1.0
                if kind == "fertility":
                    fertility = MAX_FERTILITY / (1 + np.exp(-arrays["fertility.weight"][0] @ states[row, word].numpy()))
                covered[row, word] += weights[word] / fertility
    assert score is attention.score


def test_hypotheses_have_coverages_of_their_own():
    """A target axis of several hypotheses equals one at a time."""
    attention = covering("accumulated")
    states, queries, mask = inputs()
    memory = attention.project_memory(states, mask)
    past = torch.rand(2, 3, 5, dtype=torch.float64)
    together = attention(queries, memory, 4, past)
    for beam in range(3):
        alone = attention(queries[:, beam : beam + 1], memory, 4, past[:, beam : beam + 1])
        torch.testing.assert_close(together.weights[:, beam : beam + 1], alone.weights)
        torch.testing.assert_close(together.past[:, beam : beam + 1], alone.past)


@pytest.mark.parametrize(
    ("score", "changes", "message"),
    [
        ("general", {}, "additive and concat"),
        ("additive", {"num_heads": 2, "query_size": 4, "state_size": 6, "size": 4}, "one head"),
        ("additive", {"projection": "learned"}, "one head"),
    ],
)
def test_what_it_does_not_go_with(score: str, changes: dict, message: str):
    settings = small(**{**SIZES, "coverage": "accumulated", **changes})
    with pytest.raises(UserError, match=message):
        build_attention(score, "softmax", "global", settings)
