"""Packed linear maps against plain ones."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nmt.fast import packing
from nmt.fast.packing import Packed, pack
from tests.models.small import random_batch, small_model

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")


@pytest.fixture(params=[False, pytest.param(True, marks=needs_onednn)], ids=["plain", "packed"])
def quicker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Say that packing helps, or that it does not, whatever the processor."""
    monkeypatch.setattr(packing, "onednn_is_faster", lambda x: request.param)
    return bool(request.param)


@needs_onednn
@settings(max_examples=25, deadline=None)
@given(shape=st.lists(st.integers(1, 6), min_size=1, max_size=3), size=st.integers(2, 40), outputs=st.integers(2, 70))
def test_packed_equals_unpacked(shape: list[int], size: int, outputs: int) -> None:
    plain = nn.Linear(size, outputs, bias=outputs % 2 == 0)
    packed, x = Packed(plain), torch.randn(*shape, size)
    with torch.no_grad():
        torch.testing.assert_close(packed(x), plain(x), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(packed(x[..., None, :]), plain(x[..., None, :]), rtol=1e-5, atol=1e-5)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(packed(x), plain(x))


@needs_onednn
def test_packed_has_a_gradient() -> None:
    plain = nn.Linear(6, 4)
    x = torch.randn(3, 6, requires_grad=True)
    found, expected = (torch.autograd.grad(module(x).sum(), x)[0] for module in (Packed(plain), plain))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "conditional", "gnmt"])
def test_a_packed_model_is_the_same(quicker: bool, decoder: str) -> None:
    batch, model = random_batch([(5, 4), (1, 7), (9, 1)]), small_model(decoder=decoder, num_layers=2).float().eval()
    with torch.no_grad():
        before = model.project(model(batch).features)
        state = model.start(batch.source, batch.source_mask, batch.source_lengths)
        step = model.step(batch.target_in[:, :1], state).log_probs
        pack(model)
        assert isinstance(model.output, Packed) == quicker
        torch.testing.assert_close(model.project(model(batch).features), before, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model.step(batch.target_in[:, :1], state).log_probs, step, rtol=1e-4, atol=1e-5)
    assert {type(each) for each in model.modules() if isinstance(each, nn.Linear)} <= {nn.Linear, Packed}
