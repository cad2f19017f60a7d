"""Layers over whole sequences, and attention from all steps at once."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from nmt.attention.attention import Memory
from nmt.attention.build import build_attention
from nmt.attention.scores import Additive
from nmt.fast import parallel
from nmt.fast.attention import score_pairs
from nmt.fast.parallel import attend_at_all_steps, sequence, torch_layer
from nmt.models.layers import CELLS
from tests.attention.compositions import small


@pytest.mark.parametrize("kind", CELLS)
def test_torchs_own_layer_is_the_same_recurrence(kind: str):
    """On a GPU `sequence` is torch's layer: the one that is checked here, on the CPU."""
    torch.manual_seed(0)
    cell = CELLS[kind](3, 4).double()
    for parameter in cell.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    inputs = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    initial = torch.randn(2, cell.state_size, dtype=torch.float64, requires_grad=True)
    wanted = (inputs, initial, *cell.parameters())
    found, expected = sequence(cell, inputs, initial), torch_layer(cell, inputs, initial)
    torch.testing.assert_close(found, expected)
    by_found, by_expected = (torch.autograd.grad(x.square().sum(), wanted) for x in (found, expected))
    for one, other in zip(by_found, by_expected, strict=True):
        torch.testing.assert_close(one, other)


def test_additive_scores_keep_their_digits_under_autocast():
    """2 sigma(2x) - 1 in 16 bits has an error of 0.07 here; tanh has a fifth of that."""
    torch.manual_seed(0)
    score = Additive(small(query_size=64, state_size=64, size=512))
    torch.nn.init.normal_(score.energy.weight, mean=0.1, std=0.3)
    query, keys = torch.randn(2, 3, 64), torch.randn(2, 1, 9, 512)
    with torch.no_grad():
        exact = score.double().score_pairs(query.double(), keys.double())
        score.float()
        with torch.autocast("cpu", torch.bfloat16):
            found, plain = score_pairs(score, query, keys.bfloat16()), score.score_pairs(query, keys.bfloat16())
    errors = [(each.double() - exact).square().mean().sqrt().item() for each in (found, plain)]
    assert errors[0] < 1.1 * errors[1]


@pytest.mark.parametrize("score", ["additive", "general"])
@pytest.mark.parametrize("window", ["global", "local_m"])
def test_some_steps_at_a_time_equal_all_at_once(score: str, window: str, monkeypatch: pytest.MonkeyPatch):
    torch.manual_seed(0)
    settings = small(query_size=4, state_size=4, size=3, radius=1)
    attention = build_attention(score, "softmax", window, settings).double()
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    states = torch.randn(2, 6, 4, dtype=torch.float64, requires_grad=True)
    hidden = torch.randn(5, 2, 4, dtype=torch.float64, requires_grad=True)

    def run() -> tuple[torch.Tensor, ...]:
        memory: Memory = attention.project_memory(states, mask)
        context, weights = attend_at_all_steps(attention, hidden, memory)
        return context, weights, *torch.autograd.grad(context.square().sum(), (states, hidden))

    whole = run()
    monkeypatch.setattr(parallel, "PAIRS_CPU", 2 * 2 * 6 * 3)  # two steps
    parts: list[int] = []
    computed_again = checkpoint
    monkeypatch.setattr(parallel, "checkpoint", lambda *a, **b: parts.append(a[1].shape[1]) or computed_again(*a, **b))
    for one, other in zip(run(), whole, strict=True):
        torch.testing.assert_close(one, other)
    assert set(parts) <= {1, 2}
    assert bool(parts) == (score == "additive")  # others make no vector for each pair
