"""What must hold for every decoder, cell and score."""

import numpy as np
import torch

from nmt.attention.scores import Linear
from nmt.data.batch import Batch, collate
from nmt.models.seq2seq import Seq2Seq
from nmt.text.tokenizer import BOS
from nmt.training.objective import token_loss
from tests.models.small import random_batch

LENGTHS = [(5, 4), (1, 7), (9, 1), (3, 3)]


def loss_and_gradients(model: Seq2Seq, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    loss = token_loss(model, model(batch), batch, label_smoothing=0.1).objective
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def alone(batch: Batch, row: int) -> Batch:
    source = batch.source[row][batch.source_mask[row]][:-1].numpy()
    target = batch.target_out[row][batch.target_mask[row]][:-1].numpy()
    return collate([source], [target], np.arange(1))


def test_padding_never_matters(model: Seq2Seq):
    """Loss and gradients of a batch are the sums of those of its sentences alone."""
    batch = random_batch(LENGTHS)
    loss, gradients = loss_and_gradients(model, batch)
    parts = [loss_and_gradients(model, alone(batch, row)) for row in range(len(batch))]
    torch.testing.assert_close(loss, sum(part for part, _ in parts), rtol=0, atol=1e-9)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, sum(part[name] for _, part in parts), rtol=0, atol=1e-9)


def test_every_parameter_learns(model: Seq2Seq):
    _, gradients = loss_and_gradients(model, random_batch(LENGTHS))
    assert set(gradients) == {name for name, _ in model.named_parameters()}
    # What the linear score makes of the query cancels in the normalizer; rounding alone is left of its gradient.
    linear = isinstance(getattr(model.decoder.attention, "score", None), Linear)
    idle = {"decoder.attention.score.query.weight"} if linear else set()
    assert {name for name, gradient in gradients.items() if gradient.abs().max() < 1e-12} == idle


def test_steps_equal_teacher_forcing(model: Seq2Seq):
    batch = random_batch(LENGTHS)
    decoded = model(batch)
    expected = model.project(decoded.features).log_softmax(-1)
    state = model.start(batch.source, batch.source_mask, batch.source_lengths)
    for position, tokens in enumerate(batch.target_in.split(1, dim=1)):
        step = model.step(tokens, state)
        state = step.state
        torch.testing.assert_close(step.log_probs[:, 0], expected[:, position])
        torch.testing.assert_close(step.weights[:, 0], decoded.weights[:, position])


def test_hypotheses_do_not_see_each_other(model: Seq2Seq):
    """A beam of three equals three sentences with a beam of one, through select and keep."""
    batch = random_batch([(5, 1), (3, 1)])
    start = model.start(batch.source, batch.source_mask, batch.source_lengths)
    first = model.step(torch.full((2, 1), BOS), start).state
    wide = first.select(torch.zeros(2, 3, dtype=torch.long))
    tokens = torch.tensor([[4, 5, 6], [7, 8, 9]])
    together = model.step(tokens, wide)
    for beam in range(3):
        apart = model.step(tokens[:, beam : beam + 1], first)
        torch.testing.assert_close(together.log_probs[:, beam], apart.log_probs[:, 0])
    swapped = together.state.select(torch.tensor([[2, 0], [1, 1]])).keep(torch.tensor([1]))
    after = model.step(torch.tensor([[4, 5]]), swapped)
    expected = model.step(torch.tensor([[4, 4, 4], [4, 5, 4]]), together.state)
    torch.testing.assert_close(after.log_probs[0, 0], model.step(torch.full((2, 3), 4), together.state).log_probs[1, 1])
    torch.testing.assert_close(after.log_probs[0, 1], expected.log_probs[1, 1])


def test_the_source_is_read_both_ways(model: Seq2Seq):
    """Changing the last source word changes the first prediction, and the other way round."""
    batch = random_batch([(5, 3)])
    before = model.project(model(batch).features)
    for position in (0, 4):
        source = batch.source.clone()
        source[0, position] = 4 + (source[0, position] - 3) % 7
        after = model.project(
            model(collate([source[0, :-1].numpy()], [batch.target_out[0, :-1].numpy()], np.arange(1))).features
        )
        assert (before - after).abs().amax(-1).min() > 1e-9
