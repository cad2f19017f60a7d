"""Decoders, against their formulas."""

import pytest
import torch

from nmt.models.decoder import GNMT
from nmt.models.layers import GRU
from tests.models.small import random_batch, small_model


@pytest.mark.parametrize("num_layers", [2, 3, 4])
def test_gnmt_adds_what_a_layer_reads_to_its_state_from_the_third_on(num_layers: int) -> None:
    """x^1 = s^1, x^2 = s^2, x^3 = s^3 + x^2, x^4 = s^4 + x^3, each layer reading [x; c]."""
    model = small_model(decoder="gnmt", cell="gru", num_layers=num_layers).eval()
    decoder, batch = model.decoder, random_batch([(5, 3), (4, 3)])
    assert isinstance(decoder, GNMT)
    state, memory = (found := model.start(batch.source, batch.source_mask, batch.source_lengths)).decoder, found.memory
    gates = decoder.read_words(batch.target_in[:, :1]).gates
    _, emission = decoder.advance(gates, memory, state)
    cells = list(decoder.stack.cells)
    s = [cells[0](gates, state.layers[0])]
    c = decoder.attention(s[0], memory, 0, None).context

    def layer(k: int, x: torch.Tensor) -> torch.Tensor:
        cell = cells[k]
        assert isinstance(cell, GRU)
        return cell(cell.inputs(torch.cat((x, c), dim=-1)), state.layers[k])

    expected = layer(1, s[0])
    if num_layers > 2:
        expected = layer(2, expected) + expected
    if num_layers > 3:
        expected = layer(3, expected) + expected
    torch.testing.assert_close(emission.hidden, expected)
    torch.testing.assert_close(emission.context, c)
