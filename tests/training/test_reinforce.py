"""The REINFORCE term: its expected gradient is the exact one, by enumeration of every draw."""

import itertools

import pytest
import torch

from nmt.attention.normalizers import SampledAttention
from nmt.config.schema import ReinforceConfig
from nmt.training.reinforce import Reinforce, discounted_returns

POSITIONS, STEPS = 3, 2
MASK = torch.ones(1, STEPS, dtype=torch.bool)


def log_likelihood(draws: tuple[int, ...]) -> list[float]:
    """Return for each step a reward that depends on the draws up to it."""
    return [float(-1.0 - ((7 * sum(3**k * a for k, a in enumerate(draws[: t + 1]))) % 5)) for t in range(len(draws))]


def sampled_of(scores: torch.Tensor, draws: tuple[int, ...]) -> SampledAttention:
    log_probs = scores.log_softmax(dim=-1)
    chosen = log_probs[torch.arange(STEPS), list(draws)]
    return SampledAttention(chosen[None], -(log_probs.exp() * log_probs).sum(dim=-1)[None])


def expected_gradient(scores: torch.Tensor, config: ReinforceConfig) -> torch.Tensor:
    """Sum the estimator over all draws, each weighted with its probability."""
    total = torch.zeros_like(scores)
    for draws in itertools.product(range(POSITIONS), repeat=STEPS):
        term = Reinforce(config)
        term.baseline = torch.tensor(-2.5, dtype=torch.float64)  # whatever it is, it must not matter
        sampled = sampled_of(scores, draws)
        loss = term(sampled, -torch.tensor(log_likelihood(draws), dtype=torch.float64), MASK)
        assert sampled.log_prob is not None
        total += sampled.log_prob.sum().exp().detach() * torch.autograd.grad(loss, scores)[0]
    return total


def exact_gradient(scores: torch.Tensor, entropy: float) -> torch.Tensor:
    """Differentiate -E[sum_t r_t] - entropy x sum_t H_t, the expectation written out."""
    log_probs = scores.log_softmax(dim=-1)
    objective = entropy * (log_probs.exp() * log_probs).sum()
    for draws in itertools.product(range(POSITIONS), repeat=STEPS):
        log_prob = log_probs[torch.arange(STEPS), list(draws)].sum()
        objective = objective - log_prob.exp() * sum(log_likelihood(draws))
    return torch.autograd.grad(objective, scores)[0]


@pytest.mark.parametrize("entropy", [0.0, 0.3])
def test_the_expected_gradient_is_exact(entropy: float) -> None:
    torch.manual_seed(0)
    scores = torch.randn(STEPS, POSITIONS, dtype=torch.float64, requires_grad=True)
    found = expected_gradient(scores, ReinforceConfig(discount=1.0, entropy=entropy))
    torch.testing.assert_close(found, exact_gradient(scores, entropy))


def test_a_discount_is_a_bias() -> None:
    torch.manual_seed(0)
    scores = torch.randn(STEPS, POSITIONS, dtype=torch.float64, requires_grad=True)
    found = expected_gradient(scores, ReinforceConfig(discount=0.0, entropy=0.0))
    assert not torch.allclose(found, exact_gradient(scores, 0.0))


def test_discounted_returns() -> None:
    rewards = torch.tensor([[1.0, 2.0, 4.0]])
    torch.testing.assert_close(discounted_returns(rewards, 0.5), torch.tensor([[1 + 1 + 1.0, 2 + 2.0, 4.0]]))


def test_padding_never_matters() -> None:
    torch.manual_seed(0)
    log_prob, entropy = torch.randn(2, 3, dtype=torch.float64), torch.rand(2, 3, dtype=torch.float64)
    mask = torch.tensor([[True, True, True], [True, False, False]])
    losses = torch.rand(4, dtype=torch.float64)

    def term(sampled: SampledAttention) -> torch.Tensor:
        return Reinforce(ReinforceConfig())(sampled, losses, mask)

    other = torch.where(mask, log_prob, torch.full_like(log_prob, 9.0))
    assert term(SampledAttention(log_prob, entropy)) == term(SampledAttention(other, torch.where(mask, entropy, other)))


def test_the_baseline_of_a_word_is_that_of_the_words_after_it() -> None:
    """At discount 1 a word followed by n real ones has n + 1 times the mean; padding has no part in it."""
    mask = torch.tensor([[True, True, True], [True, False, False]])
    log_prob = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    losses = torch.tensor([1.0, 2.0, 6.0, 3.0], dtype=torch.float64)  # the mean reward is -3
    config = ReinforceConfig(discount=1.0, entropy=0.0)
    Reinforce(config)(SampledAttention(log_prob, torch.zeros(2, 3, dtype=torch.float64)), losses, mask).backward()
    # R - B: -9 + 9, -8 + 6, -6 + 3 and -3 + 3; the term is minus their sum with the log-probabilities.
    torch.testing.assert_close(log_prob.grad, torch.tensor([[0.0, 2.0, 3.0], [0.0, 0.0, 0.0]], dtype=torch.float64))


def test_the_baseline_follows_the_reward_and_is_restored() -> None:
    config = ReinforceConfig(baseline_decay=0.5)
    term, sampled = Reinforce(config), SampledAttention(torch.zeros(1, 2), torch.zeros(1, 2))
    term(sampled, torch.tensor([1.0, 3.0]), MASK)
    term(sampled, torch.tensor([5.0, 7.0]), MASK)
    assert term.baseline is not None
    assert term.baseline.item() == pytest.approx(-(0.5 * 2 + 0.5 * 6))
    again = Reinforce(config)
    again.load_state_dict(term.state_dict())
    assert again.baseline == term.baseline


@pytest.mark.parametrize("known", [False, True])
def test_what_is_not_finite_is_not_remembered(known: bool) -> None:
    term, sampled = (
        Reinforce(ReinforceConfig(baseline_decay=0.5)),
        SampledAttention(torch.zeros(1, 2), torch.zeros(1, 2)),
    )
    if known:
        term(sampled, torch.tensor([1.0, 3.0]), MASK)
    term(sampled, torch.tensor([float("nan"), 7.0]), MASK)
    term(sampled, torch.tensor([5.0, 7.0]), MASK)
    assert term.baseline is not None
    assert term.baseline.item() == pytest.approx(-(0.5 * 2 + 0.5 * 6) if known else -6.0)
