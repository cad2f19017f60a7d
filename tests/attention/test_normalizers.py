"""Normalizers against their definition: the best point of the simplex, by grid, by loop and by another's code."""

import itertools

import entmax
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt.attention.normalizers import NORMALIZERS, Hard, Normalizer, Regularized
from tests.attention.compositions import small

INFINITY = float("inf")
REGULARIZED = [name for name, kind in NORMALIZERS.items() if issubclass(kind, Regularized)]
# Omega of each, written out from the papers.
REGULARIZERS = {
    "softmax": lambda p: np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0), axis=-1),
    "sparsemax": lambda p: 0.5 * np.sum(p * p, axis=-1),
    "entmax15": lambda p: 4 / 3 * (np.sum(p**1.5, axis=-1) - 1),
    "hard": lambda p: np.zeros(len(p)),
}
ORACLES = {"softmax": torch.softmax, "sparsemax": entmax.sparsemax, "entmax15": entmax.entmax15}
FLOATS = st.floats(-8, 8, allow_subnormal=False)


def make(name: str, temperature: float = 1.0) -> Normalizer:
    return NORMALIZERS[name](small(temperature=temperature)).eval()


def masked_rows(batch: int, source: int, seed: int = 0) -> torch.Tensor:
    """Scores of every scale, any number of them -inf but never a whole row."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(batch, source, dtype=torch.float64, generator=generator)
    scores *= 10 ** torch.linspace(-2, 2, batch, dtype=torch.float64)[:, None]
    forbidden = torch.rand(batch, source, generator=generator) < torch.linspace(0, 0.95, batch)[:, None]
    forbidden[:, 0] = False
    return scores.masked_fill(forbidden, -INFINITY)


def simplex(size: int, steps: int) -> np.ndarray:
    """Every point of the simplex whose coordinates are multiples of 1 / steps."""
    cuts = itertools.combinations_with_replacement(range(steps + 1), size - 1)
    return np.array([np.diff([0, *cut, steps]) for cut in cuts]) / steps


@pytest.mark.parametrize("name", NORMALIZERS)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("size", [2, 3])
def test_no_point_of_the_simplex_is_better(name: str, temperature: float, size: int):
    """weights = argmax <p, s> - T Omega(p): near the best point of a fine grid, and better than any."""
    steps = 400 if size == 2 else 120
    grid, omega = simplex(size, steps), REGULARIZERS[name]
    for scores in masked_rows(12, size, seed=size):
        weights = make(name, temperature)(scores[None])[0].numpy()
        allowed = grid[grid[:, scores.isinf().numpy()].sum(axis=1) == 0]
        finite = np.nan_to_num(scores.numpy(), neginf=0)
        values = allowed @ finite - temperature * omega(allowed)
        assert values.max() <= weights @ finite - temperature * omega(weights[None])[0] + 1e-12
        assert np.abs(allowed[values.argmax()] - weights).max() <= 2 / steps


@pytest.mark.parametrize("name", NORMALIZERS)
@given(row=st.lists(FLOATS, min_size=1, max_size=9), forbidden=st.sets(st.integers(1, 8)), exponent=st.integers(-3, 3))
def test_weights_are_on_the_simplex(name, row, forbidden, exponent):
    scores = torch.tensor([row], dtype=torch.float64) * 10.0**exponent
    masked = torch.tensor([[index in forbidden for index in range(len(row))]])
    weights = make(name)(scores.masked_fill(masked, -INFINITY))
    assert (weights >= 0).all()
    assert (weights[masked] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, dtype=torch.float64))


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("source", [1, 2, 7, 50])
def test_values_and_gradients_equal_those_of_others(name: str, source: int):
    scores = masked_rows(20, source).requires_grad_()
    reward = torch.randn(20, source, dtype=torch.float64)
    actual, expected = make(name)(scores), ORACLES[name](scores, dim=-1)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    (grad_actual,) = torch.autograd.grad((actual * reward).sum(), scores)
    (grad_expected,) = torch.autograd.grad((expected * reward).sum(), scores)
    torch.testing.assert_close(grad_actual, grad_expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", REGULARIZED)
def test_a_temperature_divides_the_scores(name: str):
    scores = masked_rows(10, 6)
    torch.testing.assert_close(make(name, 0.3)(scores), make(name)(scores / 0.3))


@pytest.mark.parametrize("name", REGULARIZED)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_gradient_follows_from_the_weights_alone(name: str, temperature: float):
    """Against finite differences for the whole Jacobian, on a row with forbidden positions, and against autograd."""
    normalizer = make(name, temperature)
    scores = torch.tensor([[0.31, -INFINITY, 1.1, 0.93, -4.0, -INFINITY, 0.17]], dtype=torch.float64)
    free = scores[0].isfinite().nonzero()[:, 0]
    weights = normalizer(scores)
    for position in range(7):
        reward = torch.eye(7, dtype=torch.float64)[position : position + 1]
        actual = normalizer.gradient(weights, reward)
        for index in range(7):
            if index not in free:
                assert actual[0, index] == 0
                continue
            step = 1e-6 * torch.eye(7, dtype=torch.float64)[index]
            slope = (normalizer(scores + step) - normalizer(scores - step))[0, position] / 2e-6
            assert float(actual[0, index]) == pytest.approx(float(slope), abs=1e-8)
        leaf = scores.clone().requires_grad_()
        torch.testing.assert_close(torch.autograd.grad(normalizer(leaf)[0, position], leaf)[0], actual)


@pytest.mark.parametrize("name", REGULARIZED)
def test_gradcheck_on_rows_with_forbidden_positions(name: str):
    free = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    forbidden = torch.tensor([[False] * 5, [False, True, False, True, False], [True, True, True, True, False]])
    normalizer = make(name, 1.3)
    assert torch.autograd.gradcheck(lambda scores: normalizer(scores.masked_fill(forbidden, -INFINITY)), free)


@pytest.mark.parametrize("name", NORMALIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_of_any_size_and_precision(name: str, dtype: torch.dtype):
    """Far apart, all the same, or huge and close: finite weights that sum to 1, with zeros on what is forbidden."""
    base = torch.tensor([[0.0, 3e4, -3e4, 1.0], [7.0] * 4, [1e6, 1e6 + 1, 1e6, -1e6], [-1e6, 0.0, 0.0, 0.0]])
    scores = torch.cat((base, torch.full((4, 200), -INFINITY)), dim=1).to(dtype).requires_grad_()
    weights = make(name)(scores)
    assert (weights[:, 4:] == 0).all()
    torch.testing.assert_close(
        weights.float().sum(-1), torch.ones(4), rtol=0, atol=1e-5 if dtype.itemsize > 2 else 2e-2
    )
    if weights.requires_grad:
        (gradient,) = torch.autograd.grad(weights[:, 0].sum(), scores)
        assert gradient.isfinite().all()


@pytest.mark.parametrize("name", ["sparsemax", "entmax15", "hard"])
def test_sparse_normalizers_give_exact_zeros(name: str):
    weights = make(name)(torch.tensor([[2.5, 2.0, -1.0, -2.0]]))
    assert (weights == 0).sum() >= 2


def test_every_normalizer_is_covered():
    for kind in NORMALIZERS.values():
        assert kind.is_sampled != issubclass(kind, Regularized)
    assert set(REGULARIZED) == set(ORACLES)
    assert set(NORMALIZERS) == set(REGULARIZERS)


# --- hard ----------------------------------------------------------------------------------------------------


def hard(temperature: float = 1.0, soft_share: float = 0.0) -> Hard:
    return Hard(small(temperature=temperature, soft_share=soft_share)).train()


def test_hard_takes_the_best_when_not_training():
    scores = masked_rows(30, 7)
    weights = hard().eval()(scores)
    assert torch.equal(weights.argmax(-1), scores.argmax(-1))
    assert torch.equal(weights.sort(-1).values, torch.tensor([0.0] * 6 + [1.0]).double().expand(30, 7))
    assert tuple(hard().eval().sampled(scores, weights)) == (None, None)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_hard_draws_from_softmax_while_training(temperature: float):
    scores = torch.tensor([0.5, -INFINITY, 1.5, -0.5, -INFINITY])
    count = 40_000
    drawn = hard(temperature)(scores.expand(count, 5))
    assert torch.equal(drawn.sort(-1).values, torch.tensor([0.0] * 4 + [1.0]).expand(count, 5))
    assert (drawn[:, [1, 4]] == 0).all()
    expected = (scores / temperature).softmax(-1)
    error = (expected * (1 - expected) / count).sqrt()
    assert ((drawn.mean(0) - expected).abs() <= 4 * error).all()


def test_hard_knows_how_likely_its_choice_was():
    """log p of what was drawn and the entropy, by loops; no gradient through the weights themselves."""
    scores = masked_rows(12, 5).requires_grad_()
    normalizer = hard(0.8)
    weights = normalizer(scores)
    assert not weights.requires_grad
    log_prob, entropy = normalizer.sampled(scores, weights)
    for row in range(12):
        z = scores.detach()[row].numpy() / 0.8
        p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        assert log_prob[row].item() == pytest.approx(np.log(p[int(weights[row].argmax())]), rel=1e-9)
        assert entropy[row].item() == pytest.approx(-sum(x * np.log(x) for x in p if x > 0), rel=1e-9, abs=1e-12)
    (grad_scores,) = torch.autograd.grad(log_prob.sum(), scores)
    torch.testing.assert_close(grad_scores, (weights - (scores.detach() / 0.8).softmax(-1)) / 0.8)


def test_the_gradients_of_hard_are_numbers():
    forbidden = torch.tensor([[False] * 4, [False, True, True, False], [True, True, False, True]])
    scores = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    normalizer = hard(0.8)
    weights = normalizer(scores.masked_fill(forbidden, -INFINITY))

    def sampled(s):
        return normalizer.sampled(s.masked_fill(forbidden, -INFINITY), weights)

    assert torch.autograd.gradcheck(sampled, scores)


def test_the_score_function_estimates_the_gradient_without_bias():
    """E[f(j) d log p_j] = d E[f], every j counted with its probability instead of drawn."""
    scores = torch.tensor([[0.4, -0.2, 1.0]], dtype=torch.float64, requires_grad=True)
    rewards, normalizer = torch.tensor([3.0, -1.0, 0.5], dtype=torch.float64), hard()
    estimate = torch.zeros(1, 3, dtype=torch.float64)
    for position in range(3):
        log_prob, _ = normalizer.sampled(scores, torch.eye(3, dtype=torch.float64)[position : position + 1])
        (gradient,) = torch.autograd.grad(log_prob.sum(), scores)
        estimate += float(log_prob.detach().exp()) * rewards[position] * gradient
    (exact,) = torch.autograd.grad((scores.softmax(-1) @ rewards).sum(), scores)
    torch.testing.assert_close(estimate, exact)


def test_a_share_of_the_rows_is_not_drawn():
    scores = torch.tensor([0.5, -INFINITY, 1.5, -0.5]).expand(20_000, 4).clone().requires_grad_()
    normalizer = hard(0.8, soft_share=0.3)
    weights = normalizer(scores)
    soft = (weights != 1.0).all(dim=-1)
    assert float(soft.float().mean()) == pytest.approx(0.3, abs=0.02)
    torch.testing.assert_close(weights[soft], (scores / 0.8).softmax(-1)[soft])
    log_prob, _ = normalizer.sampled(scores, weights)
    assert torch.equal(log_prob.eq(0), soft)
    assert torch.equal(normalizer.eval()(scores).argmax(-1), torch.full((20_000,), 2))


def test_draws_and_expectations_together_estimate_the_gradient():
    """f(w) = <rewards, w>, by 40,000 rows: the gradient through those that were not drawn, the score function else."""
    scores = torch.tensor([0.4, -0.2, 1.0], dtype=torch.float64, requires_grad=True)
    rewards, normalizer = torch.tensor([3.0, -1.0, 0.5], dtype=torch.float64), hard(soft_share=0.5)
    rows = scores.expand(40_000, 3)
    weights = normalizer(rows)
    actual = weights @ rewards
    log_prob, _ = normalizer.sampled(rows, weights)
    (estimate,) = torch.autograd.grad((actual + actual.detach() * log_prob).mean(), scores)
    (exact,) = torch.autograd.grad(scores.softmax(-1) @ rewards, scores)
    torch.testing.assert_close(estimate, exact, rtol=0, atol=0.03)


@pytest.mark.parametrize("name", ["softmax", "entmax15", "sparsemax"])
def test_default_temperatures_make_training_begin_alike(name: str):
    """A score's own weight at uniform weights over 16 words: slope (1/16) (1 - 1/16) in all of them."""
    normalizer = NORMALIZERS[name](small(temperature=None))
    scores = torch.zeros(16, dtype=torch.float64, requires_grad=True)
    (slopes,) = torch.autograd.grad(normalizer(scores[None])[0, 3], scores)
    assert float(slopes[3]) == pytest.approx(15 / 256)
