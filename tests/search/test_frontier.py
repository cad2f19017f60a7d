"""The best continuations against sorting all of them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.search.frontier import LANES, best_continuations, group_maxima, groups_for, place_of_greedy


@settings(max_examples=200, deadline=None)
@given(
    batch=st.integers(1, 4),
    beam=st.integers(1, 6),
    vocab=st.integers(2, 400) | st.integers(1_900, 4_500),
    seed=st.integers(0, 10_000),
    data=st.data(),
)
def test_as_if_all_were_sorted(batch: int, beam: int, vocab: int, seed: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, 2 * beam))
    levels = data.draw(st.sampled_from([2, 1_000_000]))  # few: ties
    generator = np.random.default_rng(seed)
    log_probs = -generator.integers(0, levels, (batch, beam, vocab)) / 8
    log_probs[generator.random(log_probs.shape) < 0.2] = -np.inf
    before = -generator.integers(0, 50, (batch, beam)) / 4
    before[:, 1:][generator.random((batch, beam - 1)) < 0.3] = -np.inf
    sums = before[:, :, None] + log_probs
    best, beams, tokens = best_continuations(torch.tensor(before), torch.tensor(log_probs), k)
    np.testing.assert_array_equal(best, -np.sort(-sums.reshape(batch, -1), axis=1)[:, :k])
    for b in range(batch):
        possible = best[b].numpy() > -np.inf
        found = list(zip(beams[b].numpy()[possible], tokens[b].numpy()[possible], strict=True))
        assert len(set(found)) == len(found)
        assert [sums[b, i, v] for i, v in found] == best[b].numpy()[possible].tolist()
    assert ((beams >= 0) & (beams < beam) & (tokens >= 0) & (tokens < vocab)).all()


@given(st.integers(2, 300_000))
def test_there_are_groups_enough_and_none_is_empty(vocab: int) -> None:
    groups = groups_for(vocab)
    assert min(vocab, (2 * vocab) ** 0.5 - 1) <= groups <= vocab
    assert groups < LANES or groups % LANES == 0


def test_sums_have_the_wider_type() -> None:
    before, log_probs = torch.tensor([[-1000.0, -1000.1]]), torch.randn(1, 2, 50, dtype=torch.bfloat16)
    best, beams, tokens = best_continuations(before, log_probs, 3)
    assert best.dtype == torch.float32
    assert torch.equal(best, before.gather(1, beams) + log_probs[0, beams[0], tokens[0]].float())


@pytest.mark.parametrize(("vocab", "groups"), [(9, 9), (10, 4), (11, 4), (12, 4), (7, 1)])
def test_tokens_are_dealt_out(vocab: int, groups: int) -> None:
    log_probs = torch.randn(2, 3, vocab)
    maxima = group_maxima(log_probs, groups)
    for group in range(groups):
        assert torch.equal(maxima[:, :, group], log_probs[:, :, group::groups].amax(dim=2))


def test_a_greedy_hypothesis_that_is_lost_has_no_place() -> None:
    beams, chosen = torch.tensor([[0, 1, 0, 1]]), torch.tensor([[0, 1]])
    places = [int(place_of_greedy(torch.tensor([before]), beams, chosen)) for before in (-1, 0, 1)]
    assert places == [-1, 0, 1]
