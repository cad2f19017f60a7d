"""Layers over whole sequences; that they equal the readable ones is in tests/fast/test_recurrence.py."""

import pytest
import torch

from nmt.fast.arena import Arena
from nmt.fast.layer import layer_of_cell
from nmt.models.cells import CELLS

CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", CELLS)
def test_memory_is_given_back_at_once_where_nothing_is_to_be_differentiated(kind: str):
    cell = CELLS[kind](3, 4)
    gates, initial = cell.inputs(torch.randn(5, 2, 3)), torch.zeros(2, cell.state_size)
    with torch.no_grad():
        expected = layer_of_cell(cell, gates, initial)
    assert len(Arena._free[CPU]) == 1
    states = layer_of_cell(cell, gates, initial)
    assert len(Arena._free[CPU]) == 0
    assert torch.equal(states, expected)
    states.sum().backward()
    assert len(Arena._free[CPU]) == 1
