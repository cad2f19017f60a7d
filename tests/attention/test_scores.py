"""Each score against its formula, in a loop in NumPy that is too simple to be wrong."""

import numpy as np
import pytest
import torch
from torch import nn

from nmt.attention.scores import (
    SCORES,
    Additive,
    Cosine,
    Dot,
    Gaussian,
    General,
    Linear,
    Location,
    ScaledDot,
    Score,
)
from nmt.errors import UserError
from tests.attention.compositions import SIZE, mask_of, random_query, random_states, small

LENGTHS = [4, 8]  # more than there are basis functions
NAMES = [*sorted(SCORES), "location:radial"]


def array(tensor):
    return tensor.detach().numpy()


def additive(score, q, k, s, length):
    energy, query, key = array(score.energy.weight)[0], array(score.query.weight), array(score.key.weight)
    return energy @ np.tanh(query @ q + key @ k + array(score.key.bias))


def linear(score, q, k, s, length):
    return array(score.query.weight)[0] @ q + array(score.key.weight)[0] @ k


def cosine(score, q, k, s, length):
    beta = np.sqrt(len(k)) * np.exp(array(score.log_sharpness))
    return beta * (q @ k) / (np.linalg.norm(q) * np.linalg.norm(k))


def gaussian(score, q, k, s, length):
    sigma = len(k) ** 0.25 * np.exp(array(score.log_bandwidth))
    return -np.sum((q - k) ** 2) / (2 * sigma**2)


def location(score, q, k, s, length):
    theta = array(score.query.weight) @ q
    if score.basis.__name__ == "canonical":
        return theta[min(s, len(theta) - 1)]
    away = (s + 0.5) / length - (np.arange(len(theta)) + 0.5) / len(theta)
    return theta @ np.exp(-((away * len(theta)) ** 2) / 2)


ORACLES = {
    Additive: additive,
    Dot: lambda score, q, k, s, length: q @ k,
    ScaledDot: lambda score, q, k, s, length: q @ k / np.sqrt(len(k)),
    General: lambda score, q, k, s, length: q @ array(score.key.weight) / np.sqrt(len(q)) @ k,
    Linear: linear,
    Cosine: cosine,
    Gaussian: gaussian,
    Location: location,
}


def make(name: str, **changes) -> Score:
    torch.manual_seed(0)
    name, _, basis = name.partition(":")
    score = SCORES[name](small(basis=basis or "canonical", **changes)).double()
    for parameter in score.parameters():
        nn.init.normal_(parameter, std=0.5)
    return score


@pytest.mark.parametrize("name", NAMES)
def test_score_equals_a_loop(name: str):
    score = make(name)
    query, states = random_query(LENGTHS, 3), random_states(LENGTHS)
    actual = array(score(query, score.project(states, mask_of(LENGTHS))))
    for b, t, s in np.ndindex(*actual.shape):
        if s < LENGTHS[b]:
            expected = ORACLES[type(score)](score, array(query)[b, t], array(states)[b, s], s, LENGTHS[b])
            np.testing.assert_allclose(actual[b, t, s], expected, rtol=1e-5 if name == "location:radial" else 1e-12)


def test_every_score_has_an_oracle():
    assert set(SCORES.values()) == set(ORACLES)


@pytest.mark.parametrize("name", ["dot", "scaled_dot", "cosine", "gaussian"])
def test_sizes_that_differ_are_explained(name: str):
    message = rf"score={name} needs .* one size, but they have 6 and 8: use general .* or model.attention.projection="
    with pytest.raises(UserError, match=message):
        make(name, state_size=8)


@pytest.mark.parametrize("name", ["additive", "concat", "general", "linear", "location"])
def test_projecting_scores_take_sizes_that_differ(name: str):
    score = make(name, state_size=8)
    keys = score.project(random_states([4, 4], size=8), mask_of([4, 4]))
    assert score(random_query([4, 4], 3), keys).shape == (2, 3, 4)


@pytest.mark.parametrize("name", NAMES)
def test_zero_and_equal_vectors_have_finite_gradients(name: str):
    """A zero query, a zero state, a state that is the query, and one that is -1000 times it."""
    score = make(name)
    query = torch.zeros(1, 2, SIZE, dtype=torch.float64)
    query[0, 1] = torch.randn(SIZE, dtype=torch.float64)
    states = torch.stack([query[0, 0], query[0, 1], -1e3 * query[0, 1]])[None]
    leaves = query.clone().requires_grad_(), states.clone().requires_grad_()
    scores = score(leaves[0], score.project(leaves[1], mask_of([3])))
    assert scores.isfinite().all()
    for gradient in torch.autograd.grad(scores.sum(), (*leaves, *score.parameters()), allow_unused=True):
        assert gradient is None or gradient.isfinite().all()


def test_cosine_sees_directions_only():
    score = make("cosine")
    query, states = random_query([4], 3), random_states([4])
    scores = score(query, score.project(states, mask_of([4])))
    torch.testing.assert_close(score(7 * query, score.project(0.01 * states, mask_of([4]))), scores)
    greatest = score(query[:, :1], score.project(query[:, :1], mask_of([1])))
    assert greatest.item() == pytest.approx(np.sqrt(SIZE) * score.log_sharpness.exp().item())


def test_gaussian_is_greatest_and_0_where_query_and_state_meet():
    """In single precision too, far from the origin, where |q|^2 + |k|^2 - 2 q k is all rounding."""
    score = make("gaussian").float()
    query = 1000 + torch.randn(1, 5, SIZE)
    scores = score(query, score.project(query, mask_of([5])))
    assert (scores <= 0).all()
    assert float(scores[0].diagonal().detach().min()) > -5


def test_gaussian_is_scaled_dot_less_a_price_for_length():
    """At first, where sigma = d^(1/4)."""
    gaussian, dot = SCORES["gaussian"](small()).double(), make("scaled_dot")
    query, states, mask = random_query(LENGTHS, 3), random_states(LENGTHS), mask_of(LENGTHS)
    price = (query.square().sum(-1)[:, :, None] + states.square().sum(-1)[:, None]) / (2 * np.sqrt(SIZE))
    expected = dot(query, dot.project(states, mask)) - price
    torch.testing.assert_close(gaussian(query, gaussian.project(states, mask)), expected)


def test_cosine_of_random_directions_has_variance_1():
    score, generator = Cosine(small()).double(), torch.Generator().manual_seed(0)
    query, states = torch.randn(2, 1, 400, SIZE, dtype=torch.float64, generator=generator)
    scores = score(query, score.project(states, mask_of([400])))
    assert float(scores.detach().var()) == pytest.approx(1.0, abs=0.05)


def test_gaussian_is_as_exact_under_autocast():
    score = make("gaussian").float()
    query, states = 10 + torch.randn(1, 3, SIZE), 10 + torch.randn(1, 4, SIZE)
    exact = score(query, score.project(states, mask_of([4])))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(score(query, score.project(states, mask_of([4]))), exact)


@pytest.mark.parametrize("name", ["location", "location:radial"])
def test_location_looks_at_positions_alone(name: str):
    score, query = make(name), random_query(LENGTHS, 3)
    one, other = (score(query, score.project(random_states(LENGTHS, seed), mask_of(LENGTHS))) for seed in (1, 2))
    assert torch.equal(one, other)


def test_positions_beyond_the_canonical_basis_share_its_last_function():
    score, query = make("location"), random_query([200], 2)
    scores = score(query, score.project(random_states([200]), mask_of([200])))[0]
    assert len(scores[0].unique()) == 5
    assert torch.equal(scores[:, 4:], scores[:, 4:5].expand(-1, 196))


def test_the_radial_basis_stretches_with_the_sentence():
    """The middle of a sentence has the same score in a short and in a long one."""
    score, query = make("location:radial"), random_query([3, 201], 2)
    query[1] = query[0]
    scores = score(query, score.project(random_states([3, 201]), mask_of([3, 201])))
    torch.testing.assert_close(scores[0, :, 1], scores[1, :, 100], rtol=1e-5, atol=1e-6)


def test_the_query_cancels_in_the_linear_score():
    score = make("linear")
    scores = score(random_query([4], 3), score.project(random_states([4]), mask_of([4])))
    torch.testing.assert_close(scores.softmax(-1), scores[:, :1].softmax(-1).expand(-1, 3, -1))
