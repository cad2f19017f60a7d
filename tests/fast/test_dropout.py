"""Dropout with cheap random bits."""

import pytest
import torch

from nmt.fast.accelerate import accelerate
from nmt.fast.dropout import LEVELS, keep_mask


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_share_and_scale(rate: float):
    torch.manual_seed(0)
    mask = keep_mask(torch.empty(500, 400), rate)
    kept = (mask > 0).double().mean().item()
    assert abs(kept - (1 - rate)) < 5 * (rate * (1 - rate) / mask.numel()) ** 0.5  # five standard deviations
    torch.testing.assert_close(mask.max().item(), 1 / (1 - round(rate * LEVELS) / LEVELS), rtol=1e-6, atol=0)


def test_neighbors_are_independent():
    """The four numbers of a word, and neighboring words, agree as often as chance has it."""
    torch.manual_seed(0)
    kept = keep_mask(torch.empty(400_000), 0.5) > 0
    for distance in (1, 2, 3, 4, 5):
        agreement = (kept[distance:] == kept[:-distance]).double().mean().item()
        assert abs(agreement - 0.5) < 5 * 0.5 / len(kept) ** 0.5


def test_follows_the_generator():
    torch.manual_seed(1)
    first = keep_mask(torch.empty(7, 5), 0.3)
    torch.manual_seed(1)
    assert torch.equal(keep_mask(torch.empty(7, 5), 0.3), first)
    assert not torch.equal(keep_mask(torch.empty(7, 5), 0.3), first)


def test_identity_in_evaluation_and_at_rate_zero():
    x = torch.randn(3, 4)
    assert accelerate(torch.nn.Dropout(0.5)).eval()(x) is x
    assert accelerate(torch.nn.Dropout(0.0))(x) is x


def test_gradient_passes_through_the_mask():
    x = torch.ones(50, requires_grad=True)
    y = accelerate(torch.nn.Dropout(0.4))(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())
