"""Attention pooling: every composition, with one query for all sentences."""

import pytest
import torch

from nmt.attention.attention import AttentionMechanism
from nmt.attention.build import build_attention
from nmt.attention.pooling import AttentionPooling
from tests.attention.compositions import COMPOSITIONS, SIZE, build, mask_of, random_states, small

every_composition = pytest.mark.parametrize("composition", COMPOSITIONS, ids="-".join)
LENGTHS = [4, 7, 1]


def pooling_of(attention: AttentionMechanism) -> AttentionPooling:
    torch.manual_seed(3)
    return AttentionPooling(attention, SIZE).double().eval()


@every_composition
def test_a_batch_is_its_sentences_one_by_one(composition: tuple[str, str, str]) -> None:
    """So padding changes nothing, neither the weights nor the context, whatever stands in it."""
    pooling, states = pooling_of(build(composition)), random_states(LENGTHS)
    together = pooling(states, mask_of(LENGTHS))
    assert together.weights.shape == (3, 1, 7)
    assert together.context.shape == (3, 1, SIZE)
    for number, length in enumerate(LENGTHS):
        alone = pooling(states[number : number + 1, :length], mask_of([length]))
        torch.testing.assert_close(together.weights[number, :, :length], alone.weights[0])
        torch.testing.assert_close(together.context[number], alone.context[0])
        assert (together.weights[number, :, length:] == 0).all()


@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax", "entmax15", "hard"])
def test_one_state_is_its_own_mean(normalizer: str) -> None:
    states = random_states([1, 1])
    attended = pooling_of(build(("additive", normalizer, "global")))(states, mask_of([1, 1]))
    torch.testing.assert_close(attended.context, states)


def test_additive_softmax_is_the_formula_of_the_paper() -> None:
    pooling, states = pooling_of(build(("additive", "softmax", "global"))), random_states([5])
    score = pooling.attention.score
    hidden = torch.tanh(states[0] @ score.key.weight.T + score.key.bias + score.query.weight @ pooling.query)
    weights = torch.softmax(hidden @ score.energy.weight[0] / 0.7, dim=0)  # the temperature of `small`
    attended = pooling(states, mask_of([5]))
    torch.testing.assert_close(attended.weights[0, 0], weights)
    torch.testing.assert_close(attended.context[0, 0], sum(p * h for p, h in zip(weights, states[0], strict=True)))


@every_composition
def test_the_query_learns_where_the_weights_depend_on_it(composition: tuple[str, str, str]) -> None:
    pooling = pooling_of(build(composition)).train()
    attended = pooling(random_states(LENGTHS), mask_of(LENGTHS))
    log_prob = attended.sampled.log_prob
    (attended.context.square().sum() + (0 if log_prob is None else log_prob.sum())).backward()
    score, _, window = composition
    # A linear score adds the same to all keys. Sharp weights are constant in places, so some may have no gradient.
    expected = score != "linear" or window == "local_p"
    if not expected:
        assert pooling.query.grad is None or pooling.query.grad.abs().max() < 1e-12
    elif composition[1] == "softmax":
        assert pooling.query.grad.abs().max() > 0


def test_heads_pool_too() -> None:
    settings = small(num_heads=2, projection="learned", size=4)
    pooling = pooling_of(build_attention("scaled_dot", "softmax", "global", settings))
    attended = pooling(random_states(LENGTHS), mask_of(LENGTHS))
    assert attended.context.shape == (3, 1, SIZE)
    torch.testing.assert_close(attended.weights.sum(-1), torch.ones(3, 1, dtype=torch.float64))
