"""Each window against a loop over positions that is too simple to be wrong."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt.attention.windows import WINDOWS, LocalPredictive, Window
from tests.attention.compositions import center_of, mask_of, random_query, seen, small

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=3)


def build(name: str, radius: int) -> Window:
    torch.manual_seed(1)
    window = WINDOWS[name](small(radius=radius)).double()
    for parameter in window.parameters():
        torch.nn.init.normal_(parameter)
    return window


@pytest.mark.parametrize("name", WINDOWS)
@given(lengths=LENGTHS, targets=st.integers(1, 4), radius=st.integers(1, 4), first=st.integers(0, 14))
def test_support_equals_a_loop(name, lengths, targets, radius, first):
    window = build(name, radius)
    query = random_query(lengths, targets)
    step = torch.arange(first, first + targets)
    support, _ = window(query, mask_of(lengths), step)
    assert torch.equal(support.expand(-1, targets, -1), seen(window, query, lengths, step))
    assert support.any(dim=-1).all()


@pytest.mark.parametrize("name", WINDOWS)
@given(lengths=LENGTHS, step=st.integers(0, 14))
def test_a_number_is_the_step_of_every_query(name, lengths, step):
    """As in beam search, where the targets are hypotheses."""
    window, query, mask = build(name, 1), random_query(lengths, 3), mask_of(lengths)
    support, taper = window(query, mask, step)
    expected, expected_taper = window(query, mask, torch.full((3,), step))
    assert torch.equal(support.expand(-1, 3, -1), expected.expand(-1, 3, -1))
    assert (taper is None and expected_taper is None) or torch.equal(taper, expected_taper)


def test_local_m_follows_the_diagonal_and_stops_at_the_last_token():
    support, taper = WINDOWS["local_m"](small(radius=1))(torch.zeros(1, 5, 6), mask_of([4]), torch.arange(5))
    rows = ["".join("x" if seen else "." for seen in row) for row in support[0]]
    assert rows == ["xx..", "xxx.", ".xxx", "..xx", "..xx"]
    assert taper is None


@pytest.mark.parametrize("radius", [1, 2, 10])
def test_the_taper_is_a_gaussian_of_half_the_radius(radius: int):
    window, lengths = build("local_p", radius), [7, 4]
    query = random_query(lengths, 3)
    _, taper = window(query, mask_of(lengths), 0)
    for b, length in enumerate(lengths):
        for t in range(3):
            for s in range(length):
                away = s - center_of(window, query[b, t], length, 0)
                assert taper[b, t, s].item() == pytest.approx(math.exp(-(away**2) / (2 * (radius / 2) ** 2)), rel=1e-9)


@pytest.mark.parametrize("energy", [-1e4, 0.0, 1e4])
def test_local_p_sees_a_token_wherever_it_looks(energy: float):
    """The sigmoid may be 0 or 1 exactly: the center is then the first token, or just behind the last."""
    window = LocalPredictive(small(radius=1))
    window.query.weight.data.fill_(1.0)
    window.position.weight.data.fill_(energy)
    lengths = [1, 2, 9]
    support, taper = window(torch.ones(3, 1, 6), mask_of(lengths), 0)
    assert support.any(dim=-1).all()
    assert (support & (taper > 0.1)).any(dim=-1).all()


def test_the_center_moves_by_gradient():
    """The weights are pulled to the position that is rewarded."""
    window = build("local_p", 2)
    query, mask = random_query([9], 1), mask_of([9])
    optimizer = torch.optim.Adam(window.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        (-window(query, mask, 0)[1][0, 0, 7]).backward()
        optimizer.step()
    assert center_of(window, query[0, 0], 9, 0) == pytest.approx(7, abs=0.1)


def test_the_center_is_exact_in_half_precision():
    """With bf16 all centers beyond 128 would be even numbers."""
    window, query = LocalPredictive(small(radius=1)), torch.randn(1, 50, 6)
    with torch.autocast("cpu", torch.bfloat16):
        _, taper = window(query, mask_of([200]), 0)
    assert taper.dtype == torch.float32
