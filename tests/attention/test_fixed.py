"""The model without attention."""

import torch

from nmt.attention.fixed import FixedContext


def test_the_context_joins_the_states_that_have_read_everything():
    states = torch.arange(2 * 4 * 6, dtype=torch.float64).view(2, 4, 6)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    memory = FixedContext().project_memory(states, mask)
    attended = FixedContext()(torch.zeros(2, 3, 5, dtype=torch.float64), memory)
    for row, last in ((0, 3), (1, 1)):
        expected = torch.cat((states[row, last, :3], states[row, 0, 3:]))
        for step in range(3):
            assert torch.equal(attended.context[row, step], expected)


def test_it_looks_nowhere():
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    memory = FixedContext().project_memory(torch.randn(2, 4, 6), mask)
    weights = FixedContext()(torch.zeros(2, 1, 5), memory).weights
    torch.testing.assert_close(weights[:, 0], torch.tensor([[0.25] * 4, [0.5, 0.5, 0.0, 0.0]]))
