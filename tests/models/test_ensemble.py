"""Ensembles against the mean of probabilities, written down."""

from typing import Any

import numpy as np
import pytest
import torch

from nmt.config.schema import AttentionConfig, ModelConfig
from nmt.data.batch import collate
from nmt.models.build import build_model
from nmt.models.ensemble import Ensemble
from nmt.models.seq2seq import Seq2Seq
from nmt.search.beam import beam_search
from tests.models.small import VOCAB, random_batch

LENGTHS = [(5, 4), (1, 7), (9, 1), (3, 3)]


def member(seed: int, decoder: str = "bahdanau", **attention: Any) -> Seq2Seq:
    torch.manual_seed(seed)
    config = ModelConfig(
        decoder=decoder, embedding_size=6, hidden_size=8, dropout=0.0, attention=AttentionConfig(**attention)
    )
    return build_model(config, VOCAB, VOCAB, joint=True).double().eval()


@pytest.fixture
def members() -> list[Seq2Seq]:
    """Three that have nothing in common but their words."""
    return [member(1), member(2, "conditional", normalizer="sparsemax"), member(3, "luong", score="dot")]


@torch.no_grad()
def test_the_probability_is_the_mean_of_the_members(members: list[Seq2Seq]) -> None:
    batch = random_batch(LENGTHS)
    inputs = (batch.source, batch.source_mask, batch.source_lengths)
    ensemble = Ensemble(members)
    state, states = ensemble.start(*inputs), [each.start(*inputs) for each in members]
    for tokens in batch.target_in.split(1, dim=1):
        step = ensemble.step(tokens, state)
        steps = [each.step(tokens, its) for each, its in zip(members, states, strict=True)]
        expected = sum(each.log_probs.exp() for each in steps) / 3
        torch.testing.assert_close(step.log_probs.exp(), expected)
        torch.testing.assert_close(step.log_probs.exp().sum(-1), torch.ones_like(expected[..., 0]))
        torch.testing.assert_close(step.weights, sum(each.weights for each in steps) / 3)
        state, states = step.state, [each.state for each in steps]


@torch.no_grad()
def test_given_targets_are_read_as_the_steps_would(members: list[Seq2Seq]) -> None:
    batch = random_batch(LENGTHS)
    models: tuple[Any, ...] = (Ensemble(members), members[0])
    for model in models:
        log_probs, weights = model.log_probs(batch), model.attend(batch)
        state = model.start(batch.source, batch.source_mask, batch.source_lengths)
        for position, tokens in enumerate(batch.target_in.split(1, dim=1)):
            step = model.step(tokens, state)
            state = step.state
            gold = step.log_probs[:, 0].gather(1, batch.target_out[:, position, None])[:, 0]
            real = batch.target_mask[:, position]
            torch.testing.assert_close(log_probs[:, position], torch.where(real, gold, 0.0))
            torch.testing.assert_close(weights[real, position], step.weights[real, 0])


@torch.no_grad()
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_model_twice_translates_as_once(beam_size: int) -> None:
    """The states of every member follow the hypotheses that go on, and the sentences that are not finished."""
    batch = random_batch(LENGTHS)
    options: dict[str, Any] = {"beam_size": beam_size, "n_best": beam_size, "max_lengths": 2 * batch.source_lengths}
    options |= {"length_penalty": 1.0, "coverage_penalty": 0.0}
    inputs = (batch.source, batch.source_mask, batch.source_lengths)
    models: tuple[Any, ...] = (member(1), Ensemble([member(1), member(1)]))
    once, twice = (beam_search(model, *inputs, **options) for model in models)
    for one, other in zip(once, twice, strict=True):
        assert [each.tokens for each in one] == [each.tokens for each in other]
        assert [each.score for each in one] == pytest.approx([each.score for each in other])


@torch.no_grad()
def test_what_is_found_has_the_probability_that_the_ensemble_gives_it(members: list[Seq2Seq]) -> None:
    """Members that disagree all follow the hypotheses that the search goes on with."""
    batch = random_batch(LENGTHS)
    inputs = (batch.source, batch.source_mask, batch.source_lengths)
    ensemble = Ensemble(members)
    options: dict[str, Any] = {"max_lengths": 2 * batch.source_lengths}
    wide = beam_search(ensemble, *inputs, beam_size=8, length_penalty=1.0, coverage_penalty=0.0, n_best=1, **options)
    assert max(len(found.tokens) for (found,) in wide) > 1
    for row, ((found,), source) in enumerate(zip(wide, batch.source, strict=True)):
        source = source[batch.source_mask[row]][:-1].numpy()
        log_probs = ensemble.log_probs(collate([source], [np.array(found.tokens, dtype=np.int64)], np.arange(1)))
        cut = len(found.tokens) == options["max_lengths"][row]  # the end mark was not produced
        assert found.log_prob == pytest.approx(float(log_probs[0, : -1 if cut else None].sum()))
