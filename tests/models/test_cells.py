"""Our cells against torch's."""

from typing import Any

import pytest
import torch
from torch import nn

from nmt.models.layers import CELLS


@pytest.mark.parametrize("name", sorted(CELLS))
def test_cell_equals_torch(name):
    torch.manual_seed(0)
    ours: Any = CELLS[name](5, 4).double()
    for parameter in ours.parameters():
        nn.init.normal_(parameter)
    inputs, hidden, memory = torch.randn(3, 5).double(), torch.randn(3, 4).double(), torch.randn(3, 4).double()
    if name == "gru":
        theirs: Any = nn.GRUCell(5, 4).double()
        copy(theirs, ours)
        with torch.no_grad():
            theirs.bias_hh[8:] = ours.candidate_bias
        torch.testing.assert_close(ours(ours.inputs(inputs), hidden), theirs(inputs, hidden))
        return
    theirs = nn.LSTMCell(5, 4).double()
    order = torch.tensor([0, 1, 3, 2])  # torch has i, f, g, o where we have i, f, o, g
    copy(theirs, ours, lambda x: x.view(4, 4, -1)[order].reshape(x.shape))
    expected = torch.cat(theirs(inputs, (hidden, memory)), dim=-1)
    torch.testing.assert_close(ours(ours.inputs(inputs), torch.cat((hidden, memory), dim=-1)), expected)


def copy(theirs, ours, arrange=lambda x: x):
    with torch.no_grad():
        theirs.weight_ih.copy_(arrange(ours.inputs.weight))
        theirs.weight_hh.copy_(arrange(ours.recurrent.weight))
        theirs.bias_ih.copy_(arrange(ours.inputs.bias))
        theirs.bias_hh.zero_()
