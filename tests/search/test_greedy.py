"""Greedy search, which is a beam of one, against a loop over one sentence."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.search import hypothesis
from nmt.search.beam import beam_search
from nmt.search.hypothesis import BOS, EOS, PAD, STEPS_BETWEEN_CHECKS, UNK
from nmt.text import tokenizer
from tests.search.toy import ToyModel, make_inputs

sources = st.lists(st.lists(st.integers(4, 9), min_size=1, max_size=4), min_size=1, max_size=6)


def greedy_search(model, *arguments, **options):
    return [best for (best,) in beam_search(model, *arguments, beam_size=1, **options)]


def one_by_one(model, source, max_length):
    """The tokens of greedy search, including eos, without tensors."""
    produced: list[int] = []
    while len(produced) < max_length and EOS not in produced:
        log_probs = model.look_up(tuple(source), (BOS, *produced))[0].copy()
        log_probs[[PAD, UNK, BOS]] = -np.inf
        produced.append(int(log_probs.argmax()))
    return produced


@settings(max_examples=50, deadline=None)
@given(rows=sources, seed=st.integers(0, 1000), alpha=st.sampled_from((0.0, 0.7, 2.0)), data=st.data())
def test_greedy_search_takes_the_best_token_at_every_step(rows, seed, alpha, data):
    limits = data.draw(st.lists(st.integers(1, 12), min_size=len(rows), max_size=len(rows)))
    model = ToyModel(seed, vocab=8)
    arguments, max_lengths = make_inputs(rows, limits)
    results = greedy_search(model, *arguments, max_lengths=max_lengths, length_penalty=alpha)
    for row, limit, result in zip(rows, limits, results, strict=True):
        produced = one_by_one(model, row, limit)
        ended = produced[-1] == EOS
        assert result.tokens == (produced[:-1] if ended else produced)
        log_prob, score, weights = model.score(tuple(row), result.tokens, alpha, ended)
        assert result.log_prob == pytest.approx(log_prob, rel=1e-6)
        assert result.score == pytest.approx(score, rel=1e-6)
        np.testing.assert_allclose(result.weights, weights, rtol=1e-6)


def test_a_hypothesis_cut_off_has_as_many_weights_as_tokens():
    arguments, max_lengths = make_inputs([[5, 6, 3]] * 2, [3, 1])
    model = ToyModel(seed=1)
    model.look_up((5, 6, 3), (BOS,))[0][EOS] = -np.inf
    model.look_up((5, 6, 3), (BOS, *one_by_one(model, [5, 6, 3], 1)))[0][EOS] = 0.0
    ended, cut = greedy_search(model, *arguments, max_lengths=max_lengths)
    assert (len(ended.tokens), ended.weights.shape) == (1, (2, 3))
    assert (len(cut.tokens), cut.weights.shape) == (1, (1, 3))


def test_finished_sentences_leave_the_batch_and_change_nothing(monkeypatch):
    rows, limits = [[4], [5, 3], [6, 7, 3], [8]], [2, 20, 5, 1]
    results = []
    for interval in (1, 3, 1_000):
        monkeypatch.setitem(STEPS_BETWEEN_CHECKS, "cpu", interval)
        model = ToyModel(seed=3, vocab=30)
        arguments, max_lengths = make_inputs(rows, limits)
        results.append([result.tokens for result in greedy_search(model, *arguments, max_lengths=max_lengths)])
        assert (min(model.batch_sizes) < len(rows)) == (interval < 1_000)
        if interval == 1:
            assert sum(model.batch_sizes) == sum(min(len(t) + 1, m) for t, m in zip(results[0], limits, strict=True))
    assert results[0] == results[1] == results[2]


def test_no_gradients_are_kept():
    arguments, max_lengths = make_inputs([[4]], [2])
    with torch.enable_grad():
        assert greedy_search(ToyModel(), *arguments, max_lengths=max_lengths)[0].weights.dtype == np.float32


def test_the_default_ids_are_those_of_the_tokenizer():
    names = ("PAD", "UNK", "BOS", "EOS")
    assert [getattr(hypothesis, name) for name in names] == [getattr(tokenizer, name) for name in names]
