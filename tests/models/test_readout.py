"""Readouts and the bridge against their formulas, number by number."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt.models.layers import READOUTS
from tests.models.small import random_batch, small_model


@pytest.mark.parametrize("name", ["maxout", "linear"])
def test_features_are_those_of_the_formula(name: str) -> None:
    torch.manual_seed(1)
    readout = READOUTS[name](3, 4, 5, 6, 0.0).double()
    hidden, context, embedded = (torch.randn(2, 1, size, dtype=torch.float64) for size in (3, 4, 5))
    found = readout(hidden, context, readout.project_word(embedded))
    maps: dict[str, Any] = dict(readout.mixed.items())
    for row in range(2):
        inputs = {"hidden": hidden[row, 0], "context": context[row, 0], "embedded": embedded[row, 0]}
        mixed = [
            sum(product(maps[part], number, each) for part, each in inputs.items())
            for number in range(6 * readout.blocks)
        ]
        expected = [max(mixed[j], mixed[6 + j]) if name == "maxout" else math.tanh(mixed[j]) for j in range(6)]
        assert found[row, 0].tolist() == pytest.approx(expected, abs=1e-12)


def product(linear: nn.Linear, row: int, vector: Tensor) -> float:
    total = sum(w * x for w, x in zip(linear.weight[row].tolist(), vector.tolist(), strict=True))
    return float(total) if linear.bias is None else float(total) + linear.bias[row].item()


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "conditional"])
def test_the_first_state_is_tanh_of_a_linear_map(decoder: str) -> None:
    model, batch = small_model(decoder=decoder).eval(), random_batch([(5, 4), (2, 3)])
    read: list[tuple[Tensor, Tensor]] = []
    model.decoder.bridge.register_forward_hook(lambda module, inputs, output: read.append((inputs[0], output)))
    first = model.start(batch.source, batch.source_mask, batch.source_lengths).decoder.layers[0][:, 0]
    ((final, bridged),) = read
    linear: Any = model.decoder.bridge[0]
    for vector, found in zip(final.flatten(0, -2), bridged.flatten(0, -2), strict=True):
        expected = [math.tanh(product(linear, j, vector)) for j in range(len(found))]
        assert found.tolist() == pytest.approx(expected, abs=1e-9)
    assert first[0].tolist() in bridged.flatten(0, -2).tolist()
