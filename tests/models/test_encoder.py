"""The readable encoder; its faster version is compared with it in tests/fast."""

import torch

from nmt.models.encoder import sentence_summary


def test_the_summary_joins_the_states_that_have_read_everything():
    states = torch.arange(2 * 4 * 6, dtype=torch.float64).view(2, 4, 6)
    summary = sentence_summary(states, torch.tensor([4, 2]))
    for row, last in ((0, 3), (1, 1)):
        assert torch.equal(summary[row], torch.cat((states[row, last, :3], states[row, 0, 3:])))
