"""The chunked loss against torch's cross-entropy."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.fast import kernels, objective
from nmt.fast.objective import CHUNK, ProjectedCrossEntropy, chunk_size


def inputs(tokens: int, vocab: int, size: int = 5, seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((tokens, size), (vocab, size), (vocab,))
    parts = [torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in shapes]
    return *parts, torch.randint(vocab, (tokens,), generator=generator)


@settings(max_examples=25, deadline=None)
@given(
    tokens=st.integers(0, 20),
    vocab=st.integers(2, 9),
    smoothing=st.sampled_from([0.0, 0.1, 0.5]),
    chunk=st.integers(1, 8),
)
def test_equals_torch_in_value_and_gradient(tokens, vocab, smoothing, chunk):
    features, weight, bias, labels = inputs(tokens, vocab)
    expected = torch.nn.functional.cross_entropy(
        features @ weight.T + bias, labels, label_smoothing=smoothing, reduction="sum"
    )
    plain = torch.nn.functional.cross_entropy(features @ weight.T + bias, labels, reduction="none")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objective, "CHUNK", chunk)
        found, cross_entropy, _ = ProjectedCrossEntropy.apply(features, weight, bias, labels, smoothing, True)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(cross_entropy, plain)
    wanted = torch.autograd.grad(3 * expected, (features, weight, bias))
    for gradient, right in zip(torch.autograd.grad(3 * found, (features, weight, bias)), wanted, strict=True):
        torch.testing.assert_close(gradient, right)


@pytest.mark.parametrize("gap", [0.0, 2.0, 6.5, 12.0])
def test_a_word_that_is_almost_certain_has_a_gradient_in_16_bits(gap: float) -> None:
    """Its probability is 1 there; what is left of it, by which the model still learns, is not lost."""
    weight, bias = torch.tensor([[gap], [0.0]], requires_grad=True), torch.zeros(2, requires_grad=True)
    features, labels = torch.ones(1, 1, requires_grad=True), torch.tensor([0])
    with torch.autocast("cpu", torch.bfloat16):
        found, cross_entropy, _ = ProjectedCrossEntropy.apply(features, weight, bias, labels, 0.0, True)
    found.backward()
    left = 1 / (1 + math.exp(gap))
    assert cross_entropy.item() == pytest.approx(math.log1p(math.exp(-gap)), rel=0.01, abs=1e-6)
    assert bias.grad.tolist() == pytest.approx([-left, left], rel=0.01, abs=1e-6)


def test_rows_of_padding_have_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """With AMX a chunk of 13 tokens has 16 rows."""
    monkeypatch.setattr(kernels, "AMX", True)
    *parts, labels = inputs(13, 7)
    parts = [part.detach().float().requires_grad_() for part in parts]
    features, weight, bias = parts
    expected = torch.nn.functional.cross_entropy(features @ weight.T + bias, labels, reduction="sum")
    wanted = torch.autograd.grad(expected, parts)
    with torch.autocast("cpu", torch.bfloat16):
        found, _, _ = ProjectedCrossEntropy.apply(*parts, labels, 0.0, True)
    for gradient, right in zip(torch.autograd.grad(found, parts), wanted, strict=True):
        torch.testing.assert_close(gradient, right, rtol=0.05, atol=0.1)


@given(tokens=st.integers(0, 20 * CHUNK))
def test_chunks_are_alike_and_hold_both_passes_of_a_token(tokens):
    size = chunk_size(tokens)
    assert size % 2 == 0
    assert size <= 1.5 * CHUNK + 2
    starts = range(0, tokens, size)
    assert len(starts) <= max(1, tokens / CHUNK + 0.5)
    last = tokens - starts[-1] if starts else size
    assert last >= size - 2 * max(1, len(starts))


def test_the_gradient_is_that_of_finite_differences():
    features, weight, bias, labels = inputs(4, 3)

    def loss(parts):
        return ProjectedCrossEntropy.apply(*parts, labels, 0.1, True)[0]

    gradients = torch.autograd.grad(loss((features, weight, bias)), (features, weight, bias))
    for part, gradient in enumerate(gradients):
        for place in range(gradient.numel()):
            values = []
            for shift in (1e-6, -1e-6):
                parts = [each.detach().clone() for each in (features, weight, bias)]
                parts[part].view(-1)[place] += shift
                values.append(loss(parts).item())
            assert gradient.view(-1)[place].item() == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-7)


def test_a_second_backward_pass_is_refused():
    found, *_ = ProjectedCrossEntropy.apply(*inputs(4, 3), 0.1, True)
    found.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once"):
        found.backward()


def test_improbable_words_have_a_finite_loss():
    features, weight, bias = torch.ones(1, 1), torch.tensor([[500.0], [-500.0]]), torch.zeros(2)
    found, *_ = ProjectedCrossEntropy.apply(features, weight, bias, torch.tensor([1]), 0.0, True)
    torch.testing.assert_close(found, torch.tensor(1000.0))


def test_bf16_stays_near_fp32():
    features, weight, bias, labels = (
        x.detach().float() if x.is_floating_point() else x for x in inputs(30, 50, size=16)
    )
    exact, *_ = ProjectedCrossEntropy.apply(features, weight, bias, labels, 0.1, True)
    with torch.autocast("cpu", torch.bfloat16):
        rounded, *_ = ProjectedCrossEntropy.apply(features, weight, bias, labels, 0.1, True)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact, rtol=1e-2, atol=0)
