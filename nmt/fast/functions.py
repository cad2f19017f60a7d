"""Elementwise functions written into given memory."""

import torch
from torch import Tensor


def tanh_(x: Tensor) -> Tensor:
    """Tanh x = 2 sigma(2x) - 1, in place: on a CPU torch's sigmoid is six times as quick as its tanh."""
    if x.device.type != "cpu":
        return x.tanh_()
    return x.mul_(2.0).sigmoid_().mul_(2.0).sub_(1.0)


def by_tanh(by_output: Tensor, output: Tensor, out: Tensor) -> None:
    """Out = by_output (1 - output^2)."""
    torch.ops.aten.tanh_backward.grad_input(by_output, output, grad_input=out)


def by_sigmoid(by_output: Tensor, output: Tensor, out: Tensor) -> None:
    """Out = by_output output (1 - output)."""
    torch.ops.aten.sigmoid_backward.grad_input(by_output, output, grad_input=out)
