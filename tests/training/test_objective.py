"""The objective against its formula, token by token; of one pass, and of two."""

from dataclasses import replace

import pytest
import torch

from nmt.config.schema import GuidedAlignmentConfig, ReinforceConfig, TrainerConfig
from nmt.models.decoder import Decoded
from nmt.training.guided_alignment import guided_alignment_loss
from nmt.training.objective import TrainingStep, token_loss
from nmt.training.reinforce import Reinforce
from tests.models.small import VOCAB, random_batch, small_model
from tests.training.toy import Make, toy


def test_it_is_the_formula():
    """-sum_i [(1 - eps) log p(y_i) + eps / V sum_v log p(v)], and -log p(y_i) of each token, on real tokens only."""
    model, batch = small_model(), random_batch([(5, 4), (1, 7), (9, 1)])
    decoded = model(batch)
    loss = token_loss(model, decoded, batch, label_smoothing=0.1)
    log_probs = model.project(decoded.features).log_softmax(dim=-1)
    objective, each = log_probs.new_zeros(()), []
    for row in range(len(batch)):
        for position in range(int(batch.target_mask[row].sum())):
            gold = log_probs[row, position, batch.target_out[row, position]]
            each.append(-gold)
            objective -= 0.9 * gold + 0.1 / VOCAB * log_probs[row, position].sum()
    torch.testing.assert_close(loss.objective, objective)
    torch.testing.assert_close(loss.cross_entropies, torch.stack(each))
    assert not loss.cross_entropies.requires_grad


def test_of_two_passes_it_is_half_of_the_loss_of_r_drop():
    """1/2 [NLL_1 + NLL_2 + alpha / 2 (KL(p || q) + KL(q || p))], each sum written out."""
    model, batch = small_model(dropout=0.4), random_batch([(5, 4), (1, 7), (9, 1)])
    decoded = model(batch.twice())
    loss = token_loss(model, decoded, batch.twice(), label_smoothing=0.1, consistency=3.0)
    passes = decoded.features.chunk(2)
    objective = sum(
        token_loss(model, Decoded(features, decoded.weights[:3]), batch, label_smoothing=0.1).objective
        for features in passes
    )
    divergence = torch.zeros((), dtype=torch.float64)
    p, q = (model.project(features).softmax(dim=-1) for features in passes)
    for row in range(len(batch)):
        for position in range(int(batch.target_mask[row].sum())):
            for one, other in zip(p[row, position], q[row, position], strict=True):
                divergence = divergence + (one * (one / other).log() + other * (other / one).log()) / 2
    assert divergence > 1.0
    torch.testing.assert_close(loss.objective, (objective + 3.0 * divergence) / 2)
    torch.testing.assert_close(loss.divergence, divergence)
    each = token_loss(model, decoded, batch.twice(), label_smoothing=0.0).cross_entropies.chunk(2)
    torch.testing.assert_close(loss.cross_entropies, (each[0] + each[1]) / 2)
    assert loss.divergence is not None
    assert not loss.divergence.requires_grad


def test_each_term_of_a_step_is_the_mean_of_both_passes():
    """The weight of guided alignment means the same with and without a second pass."""
    model, batch = small_model(dropout=0.4), random_batch([(5, 4), (1, 7), (9, 1)])
    links = torch.rand(*batch.target_out.shape, batch.source.shape[1])
    batch = replace(batch, alignment=links)
    guided = GuidedAlignmentConfig(weight=0.5)
    config = TrainerConfig(guided_alignment=guided, label_smoothing=0.1, consistency=2.0)
    step = TrainingStep(model, token_loss, Reinforce(ReinforceConfig()), config)
    torch.manual_seed(5)
    losses = step(batch, 0.0)
    torch.manual_seed(5)
    decoded = model(batch.twice())
    loss = token_loss(model, decoded, batch.twice(), label_smoothing=0.1, consistency=2.0)
    first, second = decoded.weights.chunk(2)
    alignment = guided_alignment_loss(first, links, guided.kind) + guided_alignment_loss(second, links, guided.kind)
    torch.testing.assert_close(losses.objective, loss.objective + 0.5 * alignment / 2)
    assert losses.reported.keys() == {"loss", "divergence", "alignment_loss"}
    torch.testing.assert_close(losses.reported["alignment_loss"], alignment / 2)
    torch.testing.assert_close(losses.reported["loss"], loss.cross_entropies.sum())
    torch.testing.assert_close(losses.reported["divergence"], loss.divergence)


def test_without_dropout_a_second_pass_changes_nothing():
    model, batch = small_model(), random_batch([(5, 4), (1, 7), (9, 1)])
    for consistency in (0.0, 2.0):
        config = TrainerConfig(label_smoothing=0.1, consistency=consistency)
        step = TrainingStep(model, token_loss, Reinforce(ReinforceConfig()), config)
        found = step(batch, 0.0)
        expected = token_loss(model, model(batch), batch, label_smoothing=0.1)
        torch.testing.assert_close(found.objective, expected.objective)
        torch.testing.assert_close(found.reported["loss"], expected.cross_entropies.sum())


@pytest.mark.parametrize("consistency", [0.0, 1e-6, 10.0])
def test_predictions_agree_where_they_are_taught_to(make: Make, consistency: float):
    """How far two passes of a trained toy are apart; what is off leaves no trace in the report."""
    trainer, _ = make([1.0], model=toy(dropout=0.3), max_steps=60, consistency=consistency)
    for batches in trainer.updates():
        if trainer.progress.step == 50:
            trainer.meter.restart()
        trainer.update(batches)
    divergence = trainer.meter.read().get("divergence")
    assert divergence is None if not consistency else (divergence > 0.3) is (consistency < 1.0), divergence
