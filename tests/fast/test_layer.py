"""Layers over whole sequences; that they equal the readable ones is in test_recurrence.py."""

import pytest
import torch

from nmt.fast.arena import Arena
from nmt.fast.cells import Recurrent
from nmt.fast.layer import layer
from nmt.models.layers import CELLS

CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", CELLS)
def test_memory_is_given_back_at_once_where_nothing_is_to_be_differentiated(kind: str):
    cell = CELLS[kind](3, 4)
    gates, initial = cell.inputs(torch.randn(5, 2, 3)), torch.zeros(2, cell.state_size)
    with torch.no_grad():
        expected = layer(type(cell), gates, initial, Recurrent.of(cell))
    assert len(Arena._free[CPU]) == 1
    states = layer(type(cell), gates, initial, Recurrent.of(cell))
    assert len(Arena._free[CPU]) == 0
    assert torch.equal(states, expected)
    states.sum().backward()
    assert len(Arena._free[CPU]) == 1
