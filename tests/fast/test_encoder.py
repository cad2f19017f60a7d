"""The encoder's fast path where it is not simply torch's layers; that it equals them is in test_recurrence.py."""

from typing import Any

import pytest
import torch

from nmt.config.schema import AttentionConfig
from nmt.fast import encoder as encoders
from nmt.fast.accelerate import accelerate
from nmt.fast.encoder import bidirectional, reversal_of
from nmt.models.encoder import Recurrent
from tests.models.small import random_batch, small_model

GENERAL = AttentionConfig(score="general")


def test_dropout_between_layers(monkeypatch: pytest.MonkeyPatch):
    """With a mask of threes, as if the second layer's input weights were three times as large."""
    batch = random_batch([(5, 2), (3, 2)])
    encoder: Any = accelerate(small_model(num_layers=2)).encoder
    rates = []
    monkeypatch.setattr(encoders, "keep_mask", lambda like, rate: rates.append(rate) or torch.full_like(like, 3.0))
    encoder.rnn.dropout = 0.5
    found = encoder(batch.source, batch.source_lengths)
    assert rates == [0.5]
    encoder.eval()
    with torch.no_grad():
        encoder.rnn.weight_ih_l1 *= 3.0
        encoder.rnn.weight_ih_l1_reverse *= 3.0
    expected, final = Recurrent.recur(encoder, batch.source, batch.source_lengths)
    torch.testing.assert_close(found.states[batch.source_mask], expected[batch.source_mask])
    torch.testing.assert_close(found.final, final)
    torch.testing.assert_close(encoder(batch.source, batch.source_lengths).final, final)
    assert rates == [0.5]


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("lengths", [[5, 1, 9], [3], [2, 7, 7, 1, 4]])
def test_packing_at_once_is_packing_step_by_step(cell: str, lengths: list[int]):
    """Also where the batch is wider than its longest sentence, as a part of a batch may be."""
    encoder: Any = small_model(cell=cell, num_layers=2).encoder
    batch = random_batch([(length, 2) for length in lengths])
    source = torch.nn.functional.pad(batch.source, (0, 2))
    found = []
    for recur in (Recurrent.recur, encoders.recur_packed):
        encoder.zero_grad()
        states, final = recur(encoder, source, batch.source_lengths)
        (states.square().sum() + final.pow(3).sum()).backward()
        found.append([states, final, *(each.grad for each in encoder.parameters())])
    for expected, value in zip(*found, strict=True):
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-12)


def test_gradients_of_a_common_word_add_up_precisely():
    """A word in 1,024 places: sums in bf16, which has 8 bits, would end at 256 equal parts."""
    torch.manual_seed(0)
    rnn: Any = torch.nn.GRU(4, 3, bidirectional=True, batch_first=True)
    vector, places = torch.randn(1, 4), torch.zeros(2, 512, dtype=torch.long)
    reversal = reversal_of(torch.full((512,), 2), 2)

    def gradient(enabled: bool) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            states, _ = bidirectional(rnn, 0, vector, places, reversal)
        return torch.autograd.grad(states.float().sum(), rnn.bias_ih_l0)[0]

    torch.testing.assert_close(gradient(True), gradient(False), rtol=0.03, atol=0.5)


def test_above_the_last_layer_no_dropout_is_drawn():
    model = accelerate(small_model(decoder="luong", input_feeding=False, attention=GENERAL))
    batch = random_batch([(5, 2), (3, 2)])
    model.decoder.stack.dropout.p = model.encoder.rnn.dropout = 0.5
    before = torch.get_rng_state()
    model(batch)
    assert torch.equal(torch.get_rng_state(), before)
