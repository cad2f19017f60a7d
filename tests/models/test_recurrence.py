"""The fast path of a recurrence against plain autograd."""

import contextlib

import pytest
import torch
from torch import nn

from nmt.models import decoder
from nmt.models.recurrence import StepLinear, unrolled
from nmt.models.seq2seq import Seq2Seq
from nmt.training.objective import token_loss
from tests.models.conftest import random_batch


def gradients(model: Seq2Seq) -> dict[str, torch.Tensor]:
    batch = random_batch([(5, 4), (1, 7), (9, 1)])
    model.zero_grad()
    token_loss(model, model(batch), batch, label_smoothing=0.1).objective.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def test_gradients_equal_those_of_autograd(model: Seq2Seq, monkeypatch: pytest.MonkeyPatch):
    fast = gradients(model)
    monkeypatch.setattr(decoder, "unrolled", contextlib.nullcontext)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(fast[name], gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("steps", [1, 5])
def test_values_and_gradients_of_a_chain(bias: bool, steps: int):
    linear = StepLinear(3, 3, bias=bias).double()

    def chain(inputs):
        with unrolled(linear):
            hidden = inputs
            for _ in range(steps):
                hidden = linear(hidden).tanh()
        return hidden

    inputs = torch.randn(2, 1, 3, dtype=torch.float64, requires_grad=True)
    expected = inputs
    for _ in range(steps):
        expected = nn.functional.linear(expected, linear.weight, linear.bias).tanh()
    found = chain(inputs)
    torch.testing.assert_close(found, expected)
    wanted = (inputs, *linear.parameters())
    for one, other in zip(
        torch.autograd.grad(found.sum(), wanted), torch.autograd.grad(expected.sum(), wanted), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_a_map_that_no_step_used_has_no_gradient():
    used, unused = StepLinear(2, 2), StepLinear(2, 2)
    with unrolled(nn.ModuleList([used, unused])):
        used(torch.ones(1, 2)).sum().backward()
    assert used.weight.grad is not None
    assert unused.weight.grad is None


def test_outside_the_context_it_is_a_plain_linear_map():
    linear = StepLinear(2, 2)
    with unrolled(linear):
        pass
    linear(torch.ones(1, 2)).sum().backward()
    torch.testing.assert_close(linear.weight.grad, torch.ones(2, 2))


def test_bf16_stays_near_fp32():
    linear = StepLinear(16, 16)
    inputs = torch.randn(8, 16)

    def gradient(enabled: bool) -> torch.Tensor:
        linear.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled), unrolled(linear):
            linear(linear(inputs).float().tanh()).float().square().sum().backward()
        return linear.weight.grad.clone()

    exact, rounded = gradient(False), gradient(True)
    assert rounded.dtype == torch.float32
    assert (exact - rounded).norm() < 0.02 * exact.norm()
