"""On a GPU nothing may be made on the CPU: checked without one, by tensors that have a device but no contents.

The device is torch's `meta`, the only other one that every build has; tests/test_gpu.py runs on a real GPU.
"""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from nmt.attention.scores import SCORES
from nmt.config.schema import AttentionConfig
from nmt.fast.accelerate import accelerate
from nmt.fast.objective import ProjectedCrossEntropy
from nmt.models.encoder import EncoderOutput
from tests.models.small import name_of, small_model

ROWS, STEPS, LENGTH = 3, 4, 5
VARIANTS = [
    *({"attention": AttentionConfig(score=score)} for score in SCORES),
    *({"attention": AttentionConfig(normalizer=name, window="local_p")} for name in ("sparsemax", "entmax15")),
    *(
        {"decoder": decoder, "cell": cell, "num_layers": 2}
        for decoder in ("bahdanau", "luong", "conditional", "gnmt")
        for cell in ("gru", "lstm")
    ),
    {"decoder": "luong", "input_feeding": False},
    {"decoder": "fixed_context"},
    {"attention": AttentionConfig(num_heads=2, projection="learned", window="local_m")},
]


@pytest.fixture(autouse=True)
def no_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not know the device."""
    monkeypatch.setattr(torch, "autocast", lambda *arguments, **options: nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)


def move(model: nn.Module) -> None:
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = nn.Parameter(torch.empty(parameter.shape, device="meta"))
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device="meta")


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_all_is_made_where_the_weights_are(variant: dict):
    """Any operation that is given tensors of two devices fails."""
    model: Any = accelerate(small_model(**variant))
    decoder, output, encoder = model.decoder, model.output, model.encoder
    with FakeTensorMode(), torch.no_grad():
        move(model)
        states = torch.empty(ROWS, LENGTH, encoder.state_size, device="meta")
        final = torch.empty(ROWS, len(decoder.stack.cells), encoder.final_size, device="meta")
        mask = torch.ones(ROWS, LENGTH, dtype=torch.bool, device="meta")
        memory = decoder.project_memory(EncoderOutput(states, final, states[:, 0]), mask)
        first = decoder.start(final)
        words = torch.ones(ROWS, STEPS, dtype=torch.long, device="meta")
        features, weights, _ = decoder(words, memory, first)
        arguments = (features.flatten(0, 1), output.weight, output.bias, words.flatten(), 0.1, True)
        losses = [ProjectedCrossEntropy.apply(*arguments, consistency)[0] for consistency in (0.0, 2.0)]
        assert features.is_meta
        assert weights.is_meta
        assert all(loss.is_meta for loss in losses)
