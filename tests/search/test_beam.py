"""Beam search against a list of all hypotheses."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.errors import UserError
from nmt.search.beam import beam_search
from nmt.search.hypothesis import BOS, EOS, PAD, STEPS_BETWEEN_CHECKS, UNK, sentences_to_keep
from tests.search.toy import ToyModel, make_inputs

ALPHAS = (0.0, 0.5, 1.0, 2.0)
SOURCES = st.lists(st.lists(st.integers(4, 9), min_size=1, max_size=4), min_size=1, max_size=5)


def check(model, source, hypothesis, alpha, max_length, beta=0.0):
    """A hypothesis has the log-probability, score and attention of its own path, and no more than its length."""
    is_ended = len(hypothesis.weights) > len(hypothesis.tokens)
    log_prob, score, weights = model.score(tuple(source), hypothesis.tokens, alpha, is_ended, beta)
    assert hypothesis.log_prob == pytest.approx(log_prob, rel=1e-6)
    assert hypothesis.score == pytest.approx(score, rel=1e-6)
    np.testing.assert_allclose(hypothesis.weights, weights, rtol=1e-6)
    assert len(hypothesis.weights) <= max_length
    assert all(token > EOS for token in hypothesis.tokens)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("max_length", [1, 2, 3, 4])
@pytest.mark.parametrize("sharpness", [0.3, 3.0])
def test_a_beam_that_holds_everything_finds_the_best_of_everything(alpha, max_length, sharpness):
    rows, n_best = [[4, 3], [5, 6, 3]], 5
    for seed in range(5):
        model = ToyModel(seed, vocab=7, sharpness=sharpness)
        arguments, max_lengths = make_inputs(rows, [max_length] * 2)
        settings = {"beam_size": 130, "length_penalty": alpha, "n_best": n_best, "max_lengths": max_lengths}
        for row, results in zip(rows, beam_search(model, *arguments, **settings), strict=True):
            best = model.every_hypothesis(tuple(row), max_length, alpha)[:n_best]
            assert [hypothesis.tokens for hypothesis in results] == [tokens for _, tokens in best]
            assert [hypothesis.score for hypothesis in results] == pytest.approx([score for score, _ in best], rel=1e-6)
            for hypothesis in results:
                check(model, row, hypothesis, alpha, max_length)


def test_the_unknown_token_may_be_allowed():
    rows, produced = [[4, 3], [5, 6, 3]], set()
    arguments, max_lengths = make_inputs(rows, [3, 3])
    for seed in range(5):
        model = ToyModel(seed, vocab=7)
        settings = {"beam_size": 130, "length_penalty": 1.0, "n_best": 3, "max_lengths": max_lengths}
        for row, results in zip(rows, beam_search(model, *arguments, unk=None, **settings), strict=True):
            best = model.every_hypothesis(tuple(row), 3, 1.0, forbidden=(PAD, BOS))[:3]
            assert [hypothesis.tokens for hypothesis in results] == [tokens for _, tokens in best]
            produced |= set(results[0].tokens)
    assert UNK in produced


@pytest.mark.parametrize("beta", [0.2, 3.0])
@pytest.mark.parametrize("max_length", [1, 2, 3, 4])
def test_coverage_is_a_part_of_the_score(beta, max_length):
    """Sentences of two lengths: padding must not count as unattended."""
    rows = [[4, 3], [5, 6, 4, 3]]
    for seed in range(5):
        model = ToyModel(seed, vocab=7)
        arguments, max_lengths = make_inputs(rows, [max_length] * 2)
        settings = {"length_penalty": 1.0, "coverage_penalty": beta, "n_best": 3, "max_lengths": max_lengths}
        for row, results in zip(rows, beam_search(model, *arguments, beam_size=130, **settings), strict=True):
            best = model.every_hypothesis(tuple(row), max_length, 1.0, beta)[:3]
            assert [hypothesis.tokens for hypothesis in results] == [tokens for _, tokens in best]
            assert [hypothesis.score for hypothesis in results] == pytest.approx([score for score, _ in best], rel=1e-6)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("beta", [0.0, 0.2, 3.0])
def test_the_score_is_the_formula_of_its_docstring(alpha, beta):
    """From a hypothesis' own attributes, in narrow beams too, and against the model's probabilities and attention."""
    rows = [[4, 3], [5, 6, 4, 3]]
    arguments, max_lengths = make_inputs(rows, [5, 7])
    for seed in range(5):
        model = ToyModel(seed, vocab=7)
        options = {"length_penalty": alpha, "coverage_penalty": beta, "max_lengths": max_lengths}
        for row, results in zip(rows, beam_search(model, *arguments, beam_size=4, n_best=3, **options), strict=True):
            for hypothesis in results:
                length, received = len(hypothesis.weights), hypothesis.weights.astype(float).sum(axis=0)
                score = hypothesis.log_prob / length**alpha + beta * np.log(np.minimum(1.0, received)).sum()
                assert hypothesis.score == pytest.approx(score, rel=1e-6)
                check(model, row, hypothesis, alpha, max_lengths.max(), beta)


def test_a_source_token_without_attention_costs_23_beta():
    model, (arguments, max_lengths) = ToyModel(), make_inputs([[4, 5]], [1])
    model.look_up((4, 5), (BOS,))[1][:] = [0.0, 1.0]
    options = {"beam_size": 2, "max_lengths": max_lengths, "length_penalty": 1.0}
    ((plain,),) = beam_search(model, *arguments, **options)
    ((covered,),) = beam_search(model, *arguments, coverage_penalty=0.5, **options)
    assert covered.score - plain.score == pytest.approx(0.5 * np.log(1e-10))


@settings(max_examples=60, deadline=None)
@given(
    rows=SOURCES,
    seed=st.integers(0, 1000),
    alpha=st.sampled_from(ALPHAS),
    beam_size=st.integers(2, 6),
    data=st.data(),
)
def test_a_result_does_not_depend_on_the_batch(rows, seed, alpha, beam_size, data):
    limits = data.draw(st.lists(st.integers(1, 12), min_size=len(rows), max_size=len(rows)))
    model = ToyModel(seed, vocab=8)
    arguments, max_lengths = make_inputs(rows, limits)
    options = {"beam_size": beam_size, "length_penalty": alpha, "n_best": 2}
    together = beam_search(model, *arguments, max_lengths=max_lengths, **options)
    for row, limit, results in zip(rows, limits, together, strict=True):
        arguments, max_lengths = make_inputs([row], [limit])
        (alone,) = beam_search(model, *arguments, max_lengths=max_lengths, **options)
        assert [hypothesis.tokens for hypothesis in results] == [hypothesis.tokens for hypothesis in alone]
        assert [hypothesis.score for hypothesis in results] == pytest.approx(
            [hypothesis.score for hypothesis in alone], rel=1e-9
        )
        for hypothesis in results:
            check(model, row, hypothesis, alpha, limit)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), alpha=st.sampled_from(ALPHAS), beam_size=st.integers(1, 7), limit=st.integers(2, 9))
def test_the_n_best_are_distinct_and_sorted(seed, alpha, beam_size, limit):
    arguments, max_lengths = make_inputs([[4, 5, 3]], [limit])
    model = ToyModel(seed, vocab=9)
    options = {"beam_size": beam_size, "length_penalty": alpha, "max_lengths": max_lengths}
    (results,) = beam_search(model, *arguments, n_best=beam_size, **options)
    scores = [hypothesis.score for hypothesis in results]
    assert len(results) == beam_size
    assert scores == sorted(scores, reverse=True)
    assert len({(*hypothesis.tokens, len(hypothesis.weights)) for hypothesis in results}) == beam_size
    for hypothesis in results:
        check(model, [4, 5, 3], hypothesis, alpha, limit)


def textbook(model, source, beam_size, alpha, max_length, patience=1.0):
    """Beam search as its module's docstring defines it, with lists, for one sentence and n_best = 1.

    Returns:
        the best score and its tokens, and whether all prefixes of the greedy hypothesis were in the beam.
    """
    beam: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    ended: list[tuple[float, tuple[int, ...]]] = []
    greedy: tuple[int, ...] = ()
    has_greedy = True
    for length in range(1, max_length + 1):
        grown = [
            (log_prob + model.look_up(source, (2, *prefix))[0][token], (*prefix, token))
            for log_prob, prefix in beam
            for token in range(3, model.vocab)
        ]
        grown.sort(reverse=True)
        if greedy[-1:] != (EOS,):
            greedy = (*greedy, 3 + int(np.argmax(model.look_up(source, (2, *greedy))[0][3:])))
        stops = [g for g in grown[:beam_size] if g[1][-1] == EOS or length == max_length]
        ended += [(log_prob / length**alpha, tokens) for log_prob, tokens in stops]
        beam = [g for g in grown if g[1][-1] != EOS][:beam_size] if length < max_length else []
        prefixes = [tokens for _, tokens in beam]
        has_greedy &= greedy in prefixes or greedy in [tokens for _, tokens in ended]
        if not beam or (ended and max(ended)[0] >= beam[0][0] / max_length**alpha):
            break
        is_ahead = ended and max(ended)[0] >= beam[0][0] / length**alpha
        if len(ended) >= patience * beam_size and is_ahead and not (has_greedy and greedy in prefixes):
            break
    return *max(ended), has_greedy


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 1000),
    alpha=st.sampled_from(ALPHAS),
    beam_size=st.integers(2, 6),
    limit=st.integers(1, 12),
    sharpness=st.sampled_from([0.3, 2.0]),
    patience=st.sampled_from([0.5, 1.0, 1.3, 2.0, 1e18, np.inf]),
)
def test_a_narrow_beam_does_what_the_textbook_says(seed, alpha, beam_size, limit, sharpness, patience):
    """And its result never scores below that of greedy search, where the beam had all prefixes of it."""
    source = (4, 5, 3)
    model = ToyModel(seed, vocab=9, sharpness=sharpness)
    arguments, max_lengths = make_inputs([list(source)] * 2, [limit, 12])
    options = {"length_penalty": alpha, "max_lengths": max_lengths}
    (hypothesis,), _ = beam_search(model, *arguments, beam_size=beam_size, patience=patience, **options)
    score, tokens, has_greedy = textbook(model, source, beam_size, alpha, limit, patience)
    assert hypothesis.tokens == [token for token in tokens if token != EOS]
    assert hypothesis.score == pytest.approx(score, rel=1e-6)
    if has_greedy:
        (greedy,), _ = beam_search(model, *arguments, beam_size=1, **options)
        assert hypothesis.score >= greedy.score - 1e-9


def test_a_search_waits_for_the_greedy_hypothesis():
    """Two hypotheses end with better scores than the greedy one has at that time; later it overtakes both."""
    a, b, x = 4, 5, 6
    after = {(): {a: 0.5, b: 0.45}, (a,): {x: 0.26, a: 0.25, b: 0.25, EOS: 0.24}, (b,): {EOS: 0.7, x: 0.3}}
    after |= {(b, x): {EOS: 1.0}, (a, *[x] * 8): {EOS: 1.0}}
    model = ToyModel()

    def look_up(_, prefix):
        certain = {x: 1.0}
        probabilities = np.zeros(model.vocab)
        for token, probability in after.get(prefix[1:], certain).items():
            probabilities[token] = probability
        return np.log(probabilities + 1e-30), np.ones(1)

    model.look_up = look_up  # type: ignore[method-assign]
    arguments, max_lengths = make_inputs([[3]], [20])
    for beam_size in (1, 2):
        options = {"length_penalty": 1.0, "max_lengths": max_lengths}
        ((hypothesis,),) = beam_search(model, *arguments, beam_size=beam_size, **options)
        assert hypothesis.tokens == [a, *[x] * 8]
        assert hypothesis.score == pytest.approx(np.log(0.5 * 0.26) / 10)


@pytest.mark.parametrize("patience", [1.0, np.inf])
@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_a_wider_beam_does_not_find_worse_translations(alpha, patience):
    """The mean score over random sentences; with the first rule of two alone, it falls as the beam grows."""
    rows = [[number, 3] for number in range(4, 54)]
    arguments, max_lengths = make_inputs(rows, [12] * len(rows))
    model, means = ToyModel(vocab=9, sharpness=2.0), []
    for beam_size in (1, 2, 4, 8):
        options = {"length_penalty": alpha, "patience": patience, "max_lengths": max_lengths}
        found = beam_search(model, *arguments, beam_size=beam_size, **options)
        means.append(np.mean([hypothesis.score for (hypothesis,) in found]))
    assert means == sorted(means)


def test_finished_sentences_leave_the_batch_and_change_nothing(monkeypatch):
    rows, limits = [[4], [5, 3], [6, 7, 3], [8], [9, 3]], [2, 20, 5, 1, 3]
    runs = []
    for interval in (1, 3, 1_000):
        monkeypatch.setitem(STEPS_BETWEEN_CHECKS, "cpu", interval)
        model = ToyModel(seed=3, vocab=12)
        arguments, max_lengths = make_inputs(rows, limits)
        results = beam_search(model, *arguments, beam_size=3, n_best=3, length_penalty=1.0, max_lengths=max_lengths)
        runs.append(
            [
                [(hypothesis.tokens, hypothesis.score, hypothesis.weights.tolist()) for hypothesis in row]
                for row in results
            ]
        )
        assert (min(model.batch_sizes) < len(rows)) == (interval < 1_000)
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("sizes", [1, 2, 3])
def test_some_finished_sentences_may_stay_and_change_nothing(monkeypatch, sizes, beam_size):
    """Of a large batch, finished sentences leave so that few different numbers of sentences are searched."""
    rows, limits = [[4], [5, 3], [6, 7, 3], [8], [9, 3], [5], [7, 7]], [2, 20, 5, 1, 3, 9, 2]
    arguments, max_lengths = make_inputs(rows, limits)
    options = {"beam_size": beam_size, "n_best": beam_size, "length_penalty": 1.0, "max_lengths": max_lengths}
    runs, searched = [], []
    for most in (1_000, sizes):
        monkeypatch.setattr("nmt.search.hypothesis.SIZES", most)
        model = ToyModel(seed=3, vocab=12)
        runs.append(
            [
                [(found.tokens, found.score, found.weights.tolist()) for found in row]
                for row in beam_search(model, *arguments, **options)
            ]
        )
        searched.append(model.batch_sizes)
    assert runs[0] == runs[1]
    assert len(set(searched[1])) <= sizes
    assert searched[0] != searched[1]
    multiple = {1: 7, 2: 4, 3: 3}[sizes]
    assert all(size in range(0, 10, multiple) or size == 7 for size in searched[1])


@given(is_running=st.lists(st.booleans(), min_size=1, max_size=200), more=st.integers(0, 200))
def test_all_running_sentences_are_kept_and_few_others(is_running, more):
    batch = len(is_running) + more
    kept = sentences_to_keep(torch.tensor(is_running), batch).tolist()
    multiple = (batch + 31) // 32
    assert kept == sorted(set(kept))
    assert set(kept) >= {row for row, runs in enumerate(is_running) if runs}
    assert len(kept) - sum(is_running) < multiple
    assert len(kept) % multiple == 0 or len(kept) == len(is_running)


def test_a_search_stops_when_nothing_can_get_better():
    model = ToyModel(seed=0)
    model.look_up((4,), (2,))[0][:] = np.log([0.01, 0.01, 0.01, 0.94, 0.01, 0.01, 0.01])
    arguments, max_lengths = make_inputs([[4]], [1_000])
    (results,), steps = beam_search(model, *arguments, beam_size=5, max_lengths=max_lengths), model.batch_sizes
    assert results[0].tokens == []
    assert len(steps) == STEPS_BETWEEN_CHECKS["cpu"]


def test_forbidden_tokens_never_appear_however_probable():
    model = ToyModel(seed=1)
    plain = model.look_up

    def tempting(source, prefix):
        log_probs, weights = plain(source, prefix)
        return np.where(np.arange(model.vocab) < EOS, 0.0, log_probs), weights

    model.look_up = tempting  # type: ignore[method-assign]
    arguments, max_lengths = make_inputs([[4, 5], [6]], [6, 4])
    for results in beam_search(model, *arguments, beam_size=4, n_best=4, max_lengths=max_lengths):
        assert len(results) == 4
        assert all(token > EOS for hypothesis in results for token in hypothesis.tokens)


def test_ties_fall_the_same_way_in_every_batch_and_run():
    model = ToyModel(uniform=True)
    alone, max_length = make_inputs([[4, 5]], [4])
    batch, max_lengths = make_inputs([[4, 5], [6, 7, 8], [9]], [4, 6, 2])
    options: dict[str, Any] = {"beam_size": 4, "n_best": 4, "length_penalty": 1.0}
    first = [hypothesis.tokens for hypothesis in beam_search(model, *alone, max_lengths=max_length, **options)[0]]
    for _ in range(3):
        again = beam_search(model, *batch, max_lengths=max_lengths, **options)[0]
        assert [hypothesis.tokens for hypothesis in again] == first


def test_fewer_come_back_where_fewer_exist():
    arguments, max_lengths = make_inputs([[4]], [1])
    (results,) = beam_search(ToyModel(vocab=6), *arguments, beam_size=5, n_best=5, max_lengths=max_lengths)
    assert sorted(hypothesis.tokens for hypothesis in results) == [[], [4], [5]]


def test_settings_that_make_no_sense_are_refused():
    arguments, max_lengths = make_inputs([[4]], [1])
    with pytest.raises(AssertionError):
        beam_search(ToyModel(), *arguments, beam_size=2, n_best=3, max_lengths=max_lengths)
    with pytest.raises(AssertionError, match="bound"):
        beam_search(ToyModel(), *arguments, beam_size=2, length_penalty=-1.0, max_lengths=max_lengths)
    model = ToyModel()
    model.look_up((4,), (2,))[0][:] = np.nan
    with pytest.raises(UserError, match="are not numbers"):
        beam_search(model, *arguments, beam_size=2, max_lengths=max_lengths)


def test_half_precision_probabilities_are_summed_in_single():
    class Half(ToyModel):
        def step(self, tokens, state):
            step = super().step(tokens, state)
            return replace(step, log_probs=step.log_probs.bfloat16(), weights=step.weights.bfloat16())

    arguments, max_lengths = make_inputs([[4, 5]], [9])
    model = Half(seed=4, sharpness=0.1)
    (results,) = beam_search(model, *arguments, beam_size=3, max_lengths=max_lengths)
    produced = (*results[0].tokens, EOS)[: len(results[0].weights)]
    steps = [model.look_up((4, 5), (2, *produced[:t]))[0][token] for t, token in enumerate(produced)]
    expected = torch.tensor(np.array(steps)).bfloat16().float().sum().item()
    assert results[0].log_prob == pytest.approx(expected, rel=1e-6)
