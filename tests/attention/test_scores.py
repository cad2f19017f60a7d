"""Each score against a loop in NumPy that is too simple to be wrong."""

import numpy as np
import pytest
import torch

from nmt.attention.scores import SCORES, Additive, Dot, General, ScaledDot, Score
from nmt.errors import UserError

BATCH, TARGET, SOURCE, SIZE = 2, 3, 4, 6


def array(tensor):
    return tensor.detach().numpy()


def additive(score, q, k):
    energy, query, key = array(score.energy.weight)[0], array(score.query.weight), array(score.key.weight)
    return energy @ np.tanh(query @ q + key @ k + array(score.key.bias))


ORACLES = {
    Additive: additive,
    Dot: lambda score, q, k: q @ k,
    ScaledDot: lambda score, q, k: q @ k / np.sqrt(len(k)),
    General: lambda score, q, k: q @ array(score.key.weight) @ k,
}


@pytest.fixture(params=sorted(SCORES))
def score(request) -> Score:
    torch.manual_seed(0)
    return SCORES[request.param](SIZE, SIZE, 5).double()


def test_score_equals_a_loop(score: Score):
    query = torch.randn(BATCH, TARGET, SIZE, dtype=torch.float64)
    states = torch.randn(BATCH, SOURCE, SIZE, dtype=torch.float64)
    found = array(score(query, score.project(states)))
    for b, t, s in np.ndindex(BATCH, TARGET, SOURCE):
        expected = ORACLES[type(score)](score, array(query)[b, t], array(states)[b, s])
        np.testing.assert_allclose(found[b, t, s], expected, rtol=1e-12)


def test_every_score_has_an_oracle():
    assert set(SCORES.values()) == set(ORACLES)


@pytest.mark.parametrize("name", ["dot", "scaled_dot"])
def test_sizes_that_differ_are_explained(name: str):
    with pytest.raises(UserError, match=rf"score={name} needs .* one size, but they have 6 and 8: use general"):
        SCORES[name](6, 8, 5)


@pytest.mark.parametrize("name", ["additive", "concat", "general"])
def test_projecting_scores_take_sizes_that_differ(name: str):
    score = SCORES[name](6, 8, 5)
    assert score(torch.randn(2, 3, 6), score.project(torch.randn(2, 4, 8))).shape == (2, 3, 4)
