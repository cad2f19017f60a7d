"""The model without attention."""

import torch

from nmt.attention.attention import FixedContext


def test_the_context_is_the_same_at_every_step():
    states = torch.randn(2, 1, 6, dtype=torch.float64).expand(-1, 4, -1)
    memory = FixedContext().project_memory(states, torch.tensor([[True] * 4, [True, True, False, False]]))
    attended = FixedContext()(torch.zeros(2, 3, 5, dtype=torch.float64), memory)
    for step in range(3):
        assert torch.equal(attended.context[:, step], states[:, 0])


def test_it_looks_nowhere():
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    memory = FixedContext().project_memory(torch.randn(2, 4, 6), mask)
    weights = FixedContext()(torch.zeros(2, 1, 5), memory).weights
    torch.testing.assert_close(weights[:, 0], torch.tensor([[0.25] * 4, [0.5, 0.5, 0.0, 0.0]]))
