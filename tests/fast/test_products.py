"""Shared tensors: read by products of many steps, by other operations, by both, or by nothing."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from nmt.fast.products import Factor, PerSentence, Weight, multiply, share

X = torch.randn(3, 2, 1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))  # of three steps

FACTORS: dict[str, tuple[tuple[int, ...], Callable[[Tensor], Factor], Callable[[Tensor, Tensor], Tensor]]] = {
    "weight": ((5, 4), lambda m: Weight(m, m.dtype), lambda x, m: x @ m.t()),
    "values": ((2, 4, 5), lambda m: PerSentence(m, transposed=False), lambda x, m: x @ m),
    "keys": ((2, 5, 4), lambda m: PerSentence(m, transposed=True), lambda x, m: x @ m.mT),
}


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("otherwise", [False, True])
def test_gradients_are_those_of_autograd(name: str, steps: int, otherwise: bool):
    shape, factor, plain = FACTORS[name]
    matrix = torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    def gradients(read: Tensor, product: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor | None, ...]:
        x = X.clone().requires_grad_()
        loss = 0.0 * matrix.sum() + sum(product(row, read).pow(3).sum() for row in x[:steps])
        loss = loss + read.pow(2).sum() if otherwise else loss
        return torch.autograd.grad(loss, [matrix, x], allow_unused=True)

    expected, found = gradients(matrix, plain), gradients(share(matrix, factor(matrix)), multiply)
    for one, other in zip(found, expected, strict=True):
        assert one is other is None or torch.testing.assert_close(one, other) is None
