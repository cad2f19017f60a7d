"""Sampling against a model whose probabilities can be listed."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.errors import UserError
from nmt.search import sampling
from nmt.search.beam import beam_search
from nmt.search.hypothesis import BOS, EOS, PAD, STEPS_BETWEEN_CHECKS, UNK
from nmt.search.sampling import TokenSampler, sample
from tests.search.toy import ToyModel, make_inputs

SOURCES = st.lists(st.lists(st.integers(4, 9), min_size=1, max_size=4), min_size=1, max_size=5, unique_by=tuple)


def expected(log_probs, temperature=1.0, top_k=None, top_p=None, forbidden=(PAD, UNK, BOS)):
    """The distribution of a token as the module's docstring defines it, with lists."""
    allowed = [v for v in range(len(log_probs)) if v not in forbidden]
    ranked = sorted(allowed, key=lambda v: -log_probs[v])[:top_k]
    mass = np.array([np.exp(log_probs[v] / temperature) for v in ranked])
    shares = mass / mass.sum()
    if top_p is not None:
        size = next(n for n in range(1, len(ranked) + 1) if n == len(ranked) or shares[:n].sum() >= top_p)
        ranked, shares = ranked[:size], shares[:size] / shares[:size].sum()
    return dict(zip(ranked, shares, strict=True))


def every_translation(model, source, max_length, **truncation):
    """The probability of each (tokens, whether it ended)."""
    found: dict[tuple[int, ...], float] = {}
    running: dict[tuple[int, ...], float] = {(): 1.0}
    for length in range(1, max_length + 1):
        grown = {}
        for prefix, probability in running.items():
            for token, share in expected(model.look_up(source, (BOS, *prefix))[0], **truncation).items():
                grown[*prefix, token] = probability * share
        found |= {tokens: p for tokens, p in grown.items() if tokens[-1] == EOS or length == max_length}
        running = {tokens: p for tokens, p in grown.items() if tokens[-1] != EOS}
    return found


def produced(hypothesis):
    """The tokens with the end mark, if there was one."""
    return (*hypothesis.tokens, EOS)[: len(hypothesis.weights)]


TRUNCATIONS = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0},
    {"top_k": 2},
    {"top_p": 0.6},
    {"temperature": 1.5, "top_k": 3, "top_p": 0.7},
]


@pytest.mark.parametrize("truncation", TRUNCATIONS, ids=str)
def test_frequencies_are_the_probabilities(truncation):
    """Chi-squared of whole translations; nothing outside the truncation is ever drawn."""
    draws, source = 4_000, (4, 3)
    model = ToyModel(seed=2, vocab=7)
    arguments, max_lengths = make_inputs([list(source)], [3])
    (samples,) = sample(model, *arguments, num_samples=draws, max_lengths=max_lengths, seed=1, **truncation)
    probabilities = every_translation(model, source, 3, **truncation)
    assert sum(probabilities.values()) == pytest.approx(1.0)
    counts = Counter(map(produced, samples))
    assert set(counts) <= set(probabilities)
    statistic = sum((counts[t] - draws * p) ** 2 / (draws * p) for t, p in probabilities.items())
    freedom = len(probabilities) - 1
    assert abs(statistic - freedom) < 4 * np.sqrt(2 * freedom)


@settings(max_examples=100)
@given(
    seed=st.integers(0, 1000),
    vocab=st.integers(6, 40),
    temperature=st.sampled_from([0.3, 1.0, 3.0]),
    limits=st.sampled_from([(2, None), (20, None), (None, 0.5), (None, 0.97), (None, 1.0), (2, 0.5), (20, 0.9)]),
    first=st.sampled_from([1, 3, 32]),
)
def test_the_truncation_is_exact(seed, vocab, temperature, limits, first):
    """What is kept, and what is drawn when it is looked for among few tokens at first."""
    rows = torch.from_numpy(np.random.default_rng(seed).normal(size=(5, vocab))).log_softmax(1)
    rows[:, :EOS] = -np.inf
    noise = torch.rand(rows.shape)
    sampler = sampling.TokenSampler(temperature, *limits)
    candidates, is_kept, is_whole = sampler.truncation(rows, min(limits[0] or vocab, vocab))
    drawn = sampler.draw_truncated(rows, noise, limits[0] or first)
    assert is_whole.all()
    for row, each, kept, perturbed, token in zip(rows, candidates, is_kept, noise, drawn, strict=True):
        found = list(expected(row.numpy(), temperature, *limits))
        assert each[kept].tolist() == found
        assert token == max(found, key=perturbed.__getitem__)


def test_improbable_tokens_are_as_rare_as_they_should_be():
    """With noise of few digits each of 20,000 tokens of no probability would come up now and then."""
    log_probs = torch.full((1, 200, 20_000), -40.0)
    log_probs[:, :, EOS] = 0.0
    for seed in range(5):
        noise = sampling.GumbelNoise.of(seed, torch.tensor([[5, 3]]), torch.tensor([2]), 200)
        assert (sampling.TokenSampler(1.0, None, None).draw(log_probs, noise) == EOS).all()


@settings(max_examples=15)
@given(rows=SOURCES, seed=st.integers(0, 1000), data=st.data())
def test_at_no_temperature_it_is_greedy_search(rows, seed, data):
    limits = data.draw(st.lists(st.integers(1, 8), min_size=len(rows), max_size=len(rows)))
    model = ToyModel(seed, vocab=8)
    arguments, max_lengths = make_inputs(rows, limits)
    options = {"max_lengths": max_lengths, "length_penalty": 0.7}
    greedy = beam_search(model, *arguments, beam_size=1, **options)
    # At a low temperature too, unless two tokens are nearly as likely.
    for temperature in (0.0, 1e-7):
        drawn = sample(model, *arguments, num_samples=2, seed=seed, temperature=temperature, **options)
        for (best,), samples in zip(greedy, drawn, strict=True):
            for each in samples:
                assert each.tokens == best.tokens
                assert each.score == pytest.approx(best.score, rel=1e-6)
                np.testing.assert_allclose(each.weights, best.weights, rtol=1e-6)


@settings(max_examples=25)
@given(rows=SOURCES, seed=st.integers(0, 1000), truncation=st.sampled_from(TRUNCATIONS), data=st.data())
def test_a_sample_depends_on_seed_and_sentence_alone(rows, seed, truncation, data):
    """Not on the batch, its order, the number of samples, or when finished sentences leave."""
    limits = data.draw(st.lists(st.integers(1, 12), min_size=len(rows), max_size=len(rows)))
    order = data.draw(st.permutations(range(len(rows))))
    model = ToyModel(seed, vocab=8)
    arguments, max_lengths = make_inputs([rows[i] for i in order], [limits[i] for i in order])
    options = {"seed": seed, "length_penalty": 1.0, **truncation}
    together = sample(model, *arguments, num_samples=3, max_lengths=max_lengths, **options)
    for i, samples in zip(order, together, strict=True):
        arguments, max_lengths = make_inputs([rows[i]], [limits[i]])
        (alone,) = sample(model, *arguments, num_samples=2, max_lengths=max_lengths, **options)
        assert [each.tokens for each in samples[:2]] == [each.tokens for each in alone]
        for each in samples:
            is_ended = len(each.weights) > len(each.tokens)
            log_prob, score, weights = model.score(tuple(rows[i]), each.tokens, 1.0, is_ended)
            assert [each.log_prob, each.score] == pytest.approx([log_prob, score], rel=1e-6)
            np.testing.assert_allclose(each.weights, weights, rtol=1e-6)
            assert len(each.weights) <= limits[i]


def test_finished_sentences_leave_the_batch_and_change_nothing(monkeypatch):
    rows, limits = [[4], [5, 3], [6, 7, 3], [8], [9, 3]], [2, 20, 5, 1, 3]
    runs = []
    for interval in (1, 3, 1_000):
        monkeypatch.setitem(STEPS_BETWEEN_CHECKS, "cpu", interval)
        model = ToyModel(seed=3, vocab=12)
        arguments, max_lengths = make_inputs(rows, limits)
        results = sample(model, *arguments, num_samples=3, seed=2, max_lengths=max_lengths)
        runs.append([[(each.tokens, each.score, each.weights.tolist()) for each in row] for row in results])
        assert (min(model.batch_sizes) < len(rows)) == (interval < 1_000)
    assert runs[0] == runs[1] == runs[2]


def test_some_finished_sentences_may_stay_and_change_nothing(monkeypatch):
    rows, limits = [[4], [5, 3], [6, 7, 3], [8], [9, 3]], [2, 20, 5, 1, 3]
    runs, searched = [], []
    for sizes in (1_000, 2):
        monkeypatch.setattr("nmt.search.hypothesis.SIZES", sizes)
        model = ToyModel(seed=3, vocab=12)
        arguments, max_lengths = make_inputs(rows, limits)
        results = sample(model, *arguments, num_samples=3, seed=2, max_lengths=max_lengths)
        runs.append([[(each.tokens, each.score, each.weights.tolist()) for each in row] for row in results])
        searched.append(set(model.batch_sizes))
    assert runs[0] == runs[1]
    assert searched[1] == {5, 3} < searched[0]


def test_seeds_sentences_and_numbers_have_noise_of_their_own():
    model = ToyModel(uniform=True, vocab=100)
    arguments, max_lengths = make_inputs([[4, 5, 3], [4, 6, 3], [4, 5, 3]], [8] * 3)
    drawn = [
        [
            [each.tokens for each in row]
            for row in sample(model, *arguments, num_samples=2, seed=s, max_lengths=max_lengths)
        ]
        for s in (1, 2, 2**63 - 1)
    ]
    for first, second, again in drawn:
        assert first == again
        assert len({*map(tuple, first), *map(tuple, second)}) == 4
    assert len({str(each) for each in drawn}) == 3


def test_the_unknown_token_may_be_allowed():
    arguments, max_lengths = make_inputs([[4, 3]], [6])
    for unk in (UNK, None):
        (samples,) = sample(ToyModel(), *arguments, num_samples=50, seed=1, max_lengths=max_lengths, unk=unk)
        tokens = {token for each in samples for token in each.tokens}
        assert (UNK in tokens) == (unk is None)
        assert not tokens & {PAD, BOS, EOS}


def test_a_model_without_numbers_is_noticed():
    model, (arguments, max_lengths) = ToyModel(), make_inputs([[4]], [2])
    model.look_up((4,), (BOS,))[0][:] = np.nan
    with pytest.raises(UserError, match="are not numbers"):
        sample(model, *arguments, num_samples=2, seed=1, max_lengths=max_lengths)


def test_half_precision_probabilities_are_summed_in_double():
    class Half(ToyModel):
        def step(self, tokens, state):
            step = super().step(tokens, state)
            return replace(step, log_probs=step.log_probs.bfloat16(), weights=step.weights.bfloat16())

    arguments, max_lengths = make_inputs([[4, 5]], [9])
    model = Half(seed=4, sharpness=0.1)
    ((only,),) = sample(model, *arguments, num_samples=1, seed=1, max_lengths=max_lengths)
    steps = [model.look_up((4, 5), (BOS, *produced(only)[:t]))[0][token] for t, token in enumerate(produced(only))]
    assert only.log_prob == pytest.approx(torch.tensor(np.array(steps)).bfloat16().double().sum().item(), rel=1e-9)


def test_a_nucleus_has_no_more_tokens_than_it_needs() -> None:
    """The first has all of the share that is asked for, as far as fp32 can tell."""
    candidates, is_kept, _ = TokenSampler(1.0, None, 1.0).truncation(torch.tensor([[-50.0, 0.0]]), 2)
    assert (candidates.tolist(), is_kept.tolist()) == ([[1, 0]], [[True, False]])
