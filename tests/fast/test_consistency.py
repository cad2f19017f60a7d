"""The divergence between two passes, in chunks of tokens, against the readable objective."""

from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nmt.data.batch import Batch
from nmt.fast import objective as chunked
from nmt.fast.consistency import Divergence
from nmt.fast.kernels import add_grad_weight
from nmt.models.decoder import Decoded
from nmt.models.seq2seq import Seq2Seq
from nmt.training import objective as readable
from tests.models.small import VOCAB, random_batch, small_model

SIZE = 5


def scorer(vocab: int = VOCAB, dtype: torch.dtype = torch.float64) -> Seq2Seq:
    """A model of which only the output layer is used."""
    model = small_model()
    model.output = nn.Linear(SIZE, vocab).to(dtype)
    return model


def two_passes(batch: Batch, dtype: torch.dtype = torch.float64) -> tuple[Batch, Decoded]:
    batch = batch.twice()
    features = torch.randn(*batch.target_out.shape, SIZE, dtype=dtype, requires_grad=True)
    return batch, Decoded(features, features.new_zeros(*batch.target_out.shape, batch.source.shape[1]))


def loss_and_gradients(objective: Any, model: Seq2Seq, batch: Batch, decoded: Decoded, **options: float) -> list[Any]:
    loss = objective.token_loss(model, decoded, batch, **options)
    parts = (decoded.features, model.output.weight, model.output.bias)
    return [*loss, *torch.autograd.grad(3 * loss.objective, parts)]


@settings(max_examples=25)
@given(
    lengths=st.lists(st.tuples(st.just(1), st.integers(1, 8)), min_size=1, max_size=5),
    smoothing=st.sampled_from([0.0, 0.1]),
    consistency=st.sampled_from([0.3, 5.0]),
    chunk=st.sampled_from([2, 4, 6, 512]),
)
def test_equals_the_readable_objective_in_value_and_gradient(lengths, smoothing, consistency, chunk):
    model, (batch, decoded) = scorer(), two_passes(random_batch(lengths))
    options = {"label_smoothing": smoothing, "consistency": consistency}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunked, "CHUNK", chunk)
        found = loss_and_gradients(chunked, model, batch, decoded, **options)
    for one, other in zip(found, loss_and_gradients(readable, model, batch, decoded, **options), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


def test_the_gradient_is_that_of_finite_differences():
    """An oracle that shares nothing with either derivative."""
    model, (batch, decoded) = scorer(), two_passes(random_batch([(1, 3), (1, 2)]))
    options = {"label_smoothing": 0.1, "consistency": 2.0}
    *_, gradient = loss_and_gradients(chunked, model, batch, decoded, **options)[:4]
    for place in range(0, gradient.numel(), 3):
        values = []
        for shift in (1e-6, -1e-6):
            features = decoded.features.detach().clone()
            features.view(-1)[place] += shift
            loss = chunked.token_loss(model, decoded._replace(features=features), batch, **options)
            values.append(3 * loss.objective.item())
        assert gradient.view(-1)[place].item() == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-6)


def test_equal_passes_have_no_divergence_and_the_gradient_of_one():
    model, batch = scorer(), random_batch([(1, 3), (1, 5)])
    twice, decoded = two_passes(batch)
    features = decoded.features.detach().chunk(2)[0].requires_grad_()
    both = Decoded(torch.cat((features, features)), decoded.weights)
    once = Decoded(features, decoded.weights[: len(batch)])
    found = chunked.token_loss(model, both, twice, label_smoothing=0.1, consistency=5.0)
    expected = chunked.token_loss(model, once, batch, label_smoothing=0.1)
    assert abs(found.divergence.item()) < 1e-12
    torch.testing.assert_close(found.objective, expected.objective)
    torch.testing.assert_close(found.cross_entropies, expected.cross_entropies)
    gradients = (torch.autograd.grad(loss.objective, (features, model.output.weight)) for loss in (found, expected))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_improbable_words_have_a_finite_divergence():
    """p and q of [1, 0] and [0, 1] up to e^-1000, whose logarithm the probabilities no longer know."""
    model, batch = scorer(2, torch.float32), random_batch([(1, 1)]).twice()
    features = torch.zeros(2, batch.target_out.shape[1], SIZE)
    features[0, :, 0], features[1, :, 0] = 1.0, -1.0
    with torch.no_grad():
        model.output.weight.zero_()[:, 0] = torch.tensor([500.0, -500.0])
        model.output.bias.zero_()
    batch.target_out.fill_(1)
    decoded = Decoded(features.requires_grad_(), features.new_zeros(*batch.target_out.shape, 1))
    found = loss_and_gradients(chunked, model, batch, decoded, label_smoothing=0.0, consistency=1.0)
    assert found[2].item() == pytest.approx(1000.0 * batch.target_out.shape[1])
    assert all(bool(part.isfinite().all()) for part in found)


def test_bf16_stays_near_fp32():
    model, (batch, decoded) = scorer(50, torch.float32), two_passes(random_batch([(1, 30)] * 3), torch.float32)
    run = partial(loss_and_gradients, chunked, model, batch, decoded, label_smoothing=0.1, consistency=5.0)
    exact = run()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = run()
    for one, other in zip(rounded, exact, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() <= 0.02 * other.norm()


def test_no_more_logits_exist_at_a_time_for_more_tokens(monkeypatch: pytest.MonkeyPatch):
    """A chunk of them, and three halves of a chunk beside it."""
    taken: list[torch.Size] = []

    def noted(weight: float, logits: torch.Tensor) -> Divergence:
        made = Divergence(weight, logits)
        taken.extend(each.shape for each in (logits, made.gaps, made.differences, made.products))
        return made

    monkeypatch.setattr(chunked, "Divergence", noted)
    monkeypatch.setattr(chunked, "CHUNK", 8)
    model, (batch, decoded) = scorer(), two_passes(random_batch([(1, 40)] * 3))
    largest = []
    add = add_grad_weight
    monkeypatch.setattr(chunked, "add_grad_weight", lambda *parts: largest.append(len(parts[1])) or add(*parts))
    chunked.token_loss(model, decoded, batch, label_smoothing=0.1, consistency=1.0)
    assert taken == [(8, VOCAB), *[(4, VOCAB)] * 3]
    assert max(largest) == 8
