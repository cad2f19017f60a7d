"""Linear maps and their gradients, by either library, against those of torch in double precision."""

import math
import pickle

import pytest
import torch
from torch import Tensor, nn

from nmt.fast import kernels, projection
from nmt.fast.accelerate import accelerate
from nmt.fast.projection import PACKED, Projection, linear, pack_weights, project
from tests.models.small import random_batch, small_model

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")


def gradients(y: Tensor, leaves: list[Tensor], grad: Tensor) -> list[Tensor]:
    return [each.double() for each in torch.autograd.grad(y, leaves, grad.to(y.dtype))]


@needs_onednn
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (1,), (0,)], ids=str)
@pytest.mark.parametrize("sizes", [(6, 9), (9, 6), (1, 4), (4, 1)], ids=str)
@pytest.mark.parametrize("has_bias", [True, False])
def test_values_and_gradients(
    shape: tuple[int, ...], sizes: tuple[int, int], has_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "onednn_is_faster", lambda x: x.dtype == torch.float32)
    size, outputs = sizes
    module = nn.Linear(size, outputs, bias=has_bias)
    x = torch.randn(*shape, size).transpose(0, -2).requires_grad_()  # not contiguous where it has several axes
    exact = nn.Linear(size, outputs, bias=has_bias).double()
    exact.load_state_dict(module.state_dict())
    twin = x.detach().double().requires_grad_()
    found, expected = linear(module, x), exact(twin)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    grad = torch.randn_like(expected).mT.contiguous().mT
    leaves = gradients(found, [x, *module.parameters()], grad)
    for one, other in zip(leaves, gradients(expected, [twin, *exact.parameters()], grad), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_what_needs_no_gradient_gets_none() -> None:
    x, weight, bias = torch.randn(3, 4, requires_grad=True), torch.randn(5, 4), torch.randn(5, requires_grad=True)
    Projection.apply(x, weight, bias).sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(dim=0).expand(3, 4))
    torch.testing.assert_close(bias.grad, torch.full((5,), 3.0))
    assert weight.grad is None


@pytest.mark.parametrize("is_padded", [True, False])
def test_bf16_as_by_torch(monkeypatch: pytest.MonkeyPatch, is_padded: bool) -> None:
    """Under autocast, with and without rows of padding; gradients are those of the parameters' type."""
    monkeypatch.setattr(kernels, "AMX", is_padded)
    module, x = nn.Linear(6, 9), torch.randn(5, 3, 6, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = project(x, module.weight, module.bias), module(x)
    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected)
    leaves, grad = [x, *module.parameters()], torch.randn_like(expected)
    for one, other in zip(*(torch.autograd.grad(y, leaves, grad) for y in (found, expected)), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.02)


def test_another_precision_is_left_to_torch() -> None:
    assert project(torch.randn(3, 4).double(), torch.randn(5, 4).double(), None).dtype == torch.float64


@pytest.fixture(params=[False, pytest.param(True, marks=needs_onednn)], ids=["plain", "packed"])
def quicker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Say that packing helps, or that it does not, whatever the processor."""
    most = math.inf if request.param else 0
    monkeypatch.setattr(projection, "most_rows", lambda x: most if x.dtype == torch.float32 else 0)
    return bool(request.param)


@pytest.mark.parametrize("shape", [(3,), (1, 2, 3), (5, 1)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_packed_equals_unpacked(quicker: bool, shape: tuple[int, ...], has_bias: bool) -> None:
    torch.manual_seed(1)
    plain, x = nn.Linear(6, 4, bias=has_bias), torch.randn(*shape, 6)
    expected, in_bf16 = plain(x), torch.nn.functional.linear(x.bfloat16(), plain.weight.bfloat16(), None)
    (gradient,) = torch.autograd.grad(expected.sum(), [plain.weight])
    pack_weights(accelerate(plain))
    assert (PACKED in vars(plain)) is quicker
    with torch.no_grad():
        torch.testing.assert_close(plain(x), expected, rtol=1e-5, atol=1e-5)
        with torch.autocast("cpu", torch.bfloat16):
            found = plain(x)
            assert found.dtype == torch.bfloat16
            if not has_bias:
                assert torch.equal(found, in_bf16)
    torch.testing.assert_close(torch.autograd.grad(plain(x).sum(), [plain.weight])[0], gradient)
    assert "weight" in plain.state_dict()
    assert len(plain.state_dict()) == 1 + has_bias


@needs_onednn
@pytest.mark.parametrize(
    ("instructions", "is_intel", "rows"),
    [("AVX2", False, [1, 128]), ("AVX512", False, [1, 128, 129]), ("AVX512", True, []), ("DEFAULT", False, [])],
)
def test_few_rows_by_onednn(
    instructions: str, is_intel: bool, rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With AVX2 it is faster for few rows alone, whatever their axes; with AVX-512 not on Intel's processors."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)
    monkeypatch.setattr(kernels, "IS_INTEL", is_intel)
    by_onednn: list[int] = []

    def noted(x: Tensor, *others: Tensor) -> Tensor:
        by_onednn.append(x.shape[:-1].numel())
        return kernels.onednn_linear(x, *others)

    module, exact = nn.Linear(6, 4), nn.Linear(6, 4)
    exact.load_state_dict(module.state_dict())
    pack_weights(accelerate(module))
    monkeypatch.setattr(projection, "onednn_linear", noted)
    with torch.no_grad():
        for shape in ((1,), (2, 64), (129,)):
            x = torch.randn(*shape, 6)
            torch.testing.assert_close(module(x), exact(x), rtol=1e-5, atol=1e-5)
    assert by_onednn == rows


@pytest.mark.skipif(not kernels.HAS_BF16, reason="oneDNN without bf16")
@pytest.mark.parametrize("is_padded", [True, False])
@pytest.mark.parametrize("shape", [(3,), (1, 2, 3), (5, 1), (0, 2)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_packed_in_bf16_equals_torch(
    shape: tuple[int, ...], has_bias: bool, is_padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under autocast; without it the map is computed in the precision of its parameters, as before."""
    rows: list[int] = []

    def noted(x: Tensor, *others: Tensor) -> Tensor:
        rows.append(len(x))
        return kernels.onednn_linear(x, *others)

    monkeypatch.setattr(kernels, "AMX", is_padded)
    monkeypatch.setattr(projection, "onednn_linear", noted)
    module, x = nn.Linear(6, 4, bias=has_bias), torch.randn(*shape, 6)
    in_fp32 = module(x)
    with torch.autocast("cpu", torch.bfloat16):
        expected = module(x)
        pack_weights(accelerate(module))
        for packed in (module, pickle.loads(pickle.dumps(module))):
            with torch.no_grad():
                found = packed(x)
            assert found.dtype == torch.bfloat16
            assert torch.equal(found, expected)
        count = math.prod(shape)
        assert rows == [math.ceil(count / 8) * 8 if is_padded else count] * 2
    with torch.no_grad():
        torch.testing.assert_close(module(x), in_fp32, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not kernels.HAS_BF16, reason="oneDNN without bf16")
def test_translation_in_bf16_converts_no_weight_at_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    model = accelerate(small_model(decoder="luong", num_layers=2).float().eval())
    batch = random_batch([(5, 4), (1, 7)])
    monkeypatch.setattr(projection, "project", None)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        pack_weights(model)
        state = model.start(batch.source, batch.source_mask, batch.source_lengths)
        model.step(batch.target_in[:, :1], state)


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "conditional", "gnmt"])
def test_a_packed_model_is_the_same(quicker: bool, decoder: str) -> None:
    batch, model = random_batch([(5, 4), (1, 7), (9, 1)]), small_model(decoder=decoder, num_layers=2).float().eval()
    with torch.no_grad():
        before = model.project(model(batch).features)
        state = model.start(batch.source, batch.source_mask, batch.source_lengths)
        step = model.step(batch.target_in[:, :1], state).log_probs
        pack_weights(accelerate(model))
        assert (PACKED in vars(model.output)) is quicker
        torch.testing.assert_close(model.project(model(batch).features), before, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model.step(batch.target_in[:, :1], state).log_probs, step, rtol=1e-4, atol=1e-5)
