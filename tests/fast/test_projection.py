"""Linear maps and their gradients, by either library, against those of torch in double precision."""

import pytest
import torch
from torch import Tensor, nn

from nmt.fast import kernels, projection
from nmt.fast.projection import Projection, linear, project

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
    for each in (kernels, projection):
        monkeypatch.setattr(each, "onednn_is_faster", lambda x: x.dtype == torch.float32)
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


def test_another_precision_is_left_to_torch() -> None:
    x, weight = torch.randn(3, 4), torch.randn(5, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert project(x, weight, None).dtype == torch.bfloat16
    assert project(x.double(), weight.double(), None).dtype == torch.float64
