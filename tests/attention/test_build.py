"""A new score, normalizer or window is a class and a line of its registry: then it is configured, built and trained."""

from typing import Any, final

import pytest
import torch
from torch import nn

from nmt.attention.attention import Attended, AttentionMechanism, Memory
from nmt.attention.normalizers import NORMALIZERS, Normalizer
from nmt.attention.scores import SCORES, Score
from nmt.attention.settings import AttentionSettings
from nmt.attention.windows import WINDOWS, Window
from nmt.config.check import check
from nmt.config.schema import AttentionConfig, ModelConfig, TrainConfig
from tests.models.small import random_batch, small_model


@final
class Distance(Score):
    """-w |q - h_j|_1."""

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__(settings)
        self.weight = nn.Parameter(torch.ones(()))

    def project(self, states, source_mask):
        return states

    def forward(self, query, keys):
        return -self.weight * torch.cdist(query, keys, p=1.0)


@final
class Sigmoids(Normalizer):
    """p_j = sigmoid(s_j / T) / sum_k sigmoid(s_k / T)."""

    def forward(self, scores):
        weights = (scores / self.temperature).sigmoid()
        return weights / weights.sum(dim=-1, keepdim=True)


@final
class Ahead(Window):
    """The real tokens from position min(t, S - 1) on, tapered by a learned factor."""

    def __init__(self, settings: AttentionSettings) -> None:
        super().__init__(settings)
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, query, source_mask, position):
        first = (source_mask.sum(dim=1, keepdim=True) - 1).clamp(max=position)[:, :, None]
        support = (torch.arange(source_mask.shape[1]) >= first) & source_mask[:, None]
        return support, (self.weight * support).expand(-1, query.shape[1], -1)


NEW = [("score", SCORES, Distance), ("normalizer", NORMALIZERS, Sigmoids), ("window", WINDOWS, Ahead)]


@pytest.mark.parametrize(("part", "registry", "new"), NEW, ids=[part for part, _, _ in NEW])
@pytest.mark.parametrize("decoder", ["bahdanau", "luong"])
def test_a_new_part_is_a_class_and_a_line(part, registry, new, decoder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(registry, "new", new)
    names: dict[str, Any] = {part: "new"}
    options = AttentionConfig(**names)
    check(TrainConfig(model=ModelConfig(attention=options)))
    model = small_model(decoder=decoder, attention=options)
    assert type(getattr(model.decoder.attention, part)) is new
    losses = train(model)
    assert losses[-1] < 0.5 * losses[0]
    for parameter in model.decoder.attention.parameters():
        assert float(parameter.grad.abs().max()) > 0


@final
class Mean(AttentionMechanism):
    """The mean of the encoder's states, and of nothing that is composed of score, normalizer and window."""

    def project_memory(self, states, source_mask):
        return Memory(states[..., :0], states, source_mask)

    def forward(self, query, memory, position=0, past=None):
        mask = memory.mask.to(query.dtype)
        weights = (mask / mask.sum(dim=1, keepdim=True))[:, None].expand(-1, query.shape[1], -1)
        return Attended(weights @ memory.values, weights, torch.zeros_like(weights))


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "conditional"])
def test_a_decoder_takes_any_mechanism(decoder: str):
    model = small_model(decoder=decoder)
    model.decoder.attention = Mean()
    losses = train(model)
    assert losses[-1] < 0.5 * losses[0]


def train(model: nn.Module) -> list[float]:
    """Return the losses of 25 updates on one batch."""
    batch = random_batch([(5, 4), (3, 6), (7, 5)])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(25):
        logits = model.project(model(batch).features)[batch.target_mask]
        loss = nn.functional.cross_entropy(logits, batch.target_out[batch.target_mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
