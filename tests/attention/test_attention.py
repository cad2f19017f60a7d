"""Properties of every composition score x normalizer x window."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.attention.attention import Attention, Memory, build_attention
from nmt.attention.normalizers import NORMALIZERS
from nmt.attention.scores import SCORES
from nmt.attention.windows import WINDOWS
from nmt.errors import UserError

SIZE = 6
COMPOSITIONS = list(itertools.product(SCORES, NORMALIZERS, WINDOWS))


def build(composition) -> Attention:
    torch.manual_seed(0)
    score, normalizer, window = composition
    return build_attention(score, normalizer, window, query_size=SIZE, state_size=SIZE, size=5).double().eval()


def memory_of(attention: Attention, lengths: list[int], seed: int = 1) -> tuple[torch.Tensor, Memory]:
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(len(lengths), max(lengths), SIZE, dtype=torch.float64, generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return states, attention.remember(states, mask)


@pytest.mark.parametrize("composition", COMPOSITIONS, ids="-".join)
@settings(max_examples=15, deadline=None)
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4), targets=st.integers(1, 4))
def test_weights_are_on_the_simplex_and_zero_on_padding(composition, lengths, targets):
    attention = build(composition)
    _, memory = memory_of(attention, lengths)
    attended = attention(torch.randn(len(lengths), targets, SIZE, dtype=torch.float64), memory)
    assert (attended.weights >= 0).all()
    torch.testing.assert_close(attended.weights.sum(-1), torch.ones(len(lengths), targets, dtype=torch.float64))
    padding = ~memory.mask[:, None].expand_as(attended.weights)
    assert (attended.weights[padding] == 0).all()
    torch.testing.assert_close(attended.context, attended.weights @ memory.values)


@pytest.mark.parametrize("composition", COMPOSITIONS, ids="-".join)
def test_padding_never_reaches_the_context(composition):
    attention = build(composition)
    states, memory = memory_of(attention, [3, 5])
    states = states.clone()
    states[0, 3:] = float("nan")
    query = torch.randn(2, 2, SIZE, dtype=torch.float64)
    clean = attention(query, memory)
    states[0, 3:] = 1e6
    dirty = attention(query, attention.remember(states, memory.mask))
    torch.testing.assert_close(clean.context, dirty.context, rtol=0, atol=0)


@pytest.mark.parametrize("composition", COMPOSITIONS, ids="-".join)
def test_step_by_step_equals_all_at_once(composition):
    attention = build(composition)
    _, memory = memory_of(attention, [4, 7])
    query = torch.randn(2, 3, SIZE, dtype=torch.float64)
    together = attention(query, memory).context
    apart = [attention(query[:, t : t + 1], memory, step=t).context for t in range(3)]
    torch.testing.assert_close(together, torch.cat(apart, dim=1))


@pytest.mark.parametrize("composition", COMPOSITIONS, ids="-".join)
def test_gradients(composition):
    attention = build(composition)
    _, memory = memory_of(attention, [2, 4])
    query = torch.randn(2, 2, SIZE, dtype=torch.float64, requires_grad=True)
    states = memory.values.detach().requires_grad_()

    def context(query, states):
        return attention(query, attention.remember(states, memory.mask)).context

    assert torch.autograd.gradcheck(context, (query, states))


@pytest.mark.parametrize("composition", COMPOSITIONS, ids="-".join)
@pytest.mark.parametrize("length", [1, 2, 50, 200])
def test_finite_at_any_length(composition, length):
    attention = build(composition)
    _, memory = memory_of(attention, [length, 1])
    assert attention(100 * torch.randn(2, 3, SIZE, dtype=torch.float64), memory).context.isfinite().all()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("addtive", "softmax", "global"),
            r"unknown model.attention.score 'addtive': choose one of additive, .*did you mean 'additive'",
        ),
        (("dot", "softmx", "global"), r"unknown model.attention.normalizer 'softmx'.*did you mean 'softmax'"),
        (("dot", "softmax", "globl"), r"unknown model.attention.window 'globl'.*did you mean 'global'"),
    ],
)
def test_unknown_names_are_explained(names, message):
    with pytest.raises(UserError, match=message):
        build_attention(*names, query_size=4, state_size=4, size=4)
