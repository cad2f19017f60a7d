"""Cells, and layers over whole sequences; that they equal the readable ones is in test_recurrence.py, too."""

from typing import Any

import pytest
import torch

from nmt.fast import cells
from nmt.fast.cells import candidate_bias, layer
from nmt.models.layers import CELLS


@pytest.mark.parametrize("kind", CELLS)
def test_derivative_is_that_of_finite_differences(kind: str):
    cell = CELLS[kind](3, 4).double()
    gates = torch.randn(2, cell.gates * 4, dtype=torch.float64, requires_grad=True)
    state = torch.randn(2, cell.state_size, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda *arguments: cells.forward(cell, *arguments), (gates, state))


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("directions", [(), (2,)])
def test_a_layer_is_its_cell_step_by_step(kind: str, directions: tuple[int, ...]):
    torch.manual_seed(0)
    each: list[Any] = [CELLS[kind](3, 4) for _ in range(2)][: len(directions) + 1]
    gates = torch.randn(*directions, 5, 2, each[0].gates * 4)
    initial = torch.randn(*directions, 2, each[0].state_size)
    weight, bias = each[0].recurrent.weight, candidate_bias(each[0])
    if directions:
        weight = torch.stack([cell.recurrent.weight for cell in each])
        bias = None if bias is None else torch.stack([cell.candidate_bias for cell in each])
    states = layer(type(each[0]), gates, initial, weight, bias)
    for direction, cell in enumerate(each):
        index = (direction,) if directions else ()
        state = initial[index]
        for step, share in enumerate(gates[index]):
            state = cell(share, state)
            torch.testing.assert_close(states[index][step], state)


def test_products_are_in_the_precision_of_autocast_and_states_in_that_of_the_weights():
    cell = CELLS["lstm"](3, 4)
    gates, initial = torch.randn(5, 2, 16).bfloat16(), torch.randn(2, 8)
    with torch.autocast("cpu", torch.bfloat16):
        states = layer(type(cell), gates, initial, cell.recurrent.weight, None)
    assert states.dtype == torch.float32
    product = initial[:, :4].bfloat16() @ cell.recurrent.weight.bfloat16().t()
    enter, forget, out, candidate = (gates[0].float() + product.float()).chunk(4, dim=-1)
    memory = forget.sigmoid() * initial[:, 4:] + enter.sigmoid() * candidate.tanh()
    torch.testing.assert_close(states[0], torch.cat((out.sigmoid() * memory.tanh(), memory), dim=1))
