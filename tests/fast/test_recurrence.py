"""The fast path against the readable one: values and gradients, for every decoder, cell, score and option."""

import gc
import weakref
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.attention.normalizers import NORMALIZERS
from nmt.config.schema import AttentionConfig
from nmt.data.batch import Batch
from nmt.fast import attention as fast_attention
from nmt.fast import cells, dropout, kernels, products, recurrence
from nmt.fast.accelerate import accelerate, decelerate
from nmt.fast.objective import token_loss
from nmt.fast.projection import PACKED, pack_weights
from nmt.models.decoder import DECODERS
from nmt.models.seq2seq import Seq2Seq
from tests.fast.equality import assert_same, run
from tests.models.small import random_batch, small_model

LENGTHS = [(5, 4), (1, 7), (9, 1)]


def test_equals_the_readable_path(model: Seq2Seq):
    assert_same(model, random_batch(LENGTHS))


@pytest.mark.parametrize("normalizer", [name for name, kind in NORMALIZERS.items() if not kind.is_sampled])
@pytest.mark.parametrize("score", ["additive", "general"])
@pytest.mark.parametrize("window", ["global", "local_m", "local_p"])
def test_equals_it_with_other_normalizers_and_windows(score: str, normalizer: str, window: str):
    attention = AttentionConfig(score=score, normalizer=normalizer, window=window, radius=2)
    assert_same(small_model(decoder="conditional", attention=attention), random_batch(LENGTHS))


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=5),
    decoder=st.sampled_from(["bahdanau", "luong", "conditional"]),
    cell=st.sampled_from(["gru", "lstm"]),
    num_layers=st.integers(1, 3),
)
def test_equals_it_for_any_shapes(lengths, decoder, cell, num_layers):
    assert_same(small_model(decoder=decoder, cell=cell, num_layers=num_layers), random_batch(lengths))


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "conditional"])
def test_equals_it_under_dropout_between_layers(decoder: str, monkeypatch: pytest.MonkeyPatch):
    def every_other(like: torch.Tensor, rate: float) -> torch.Tensor:
        return (torch.arange(like.shape[-1]) % 2 * 2.0).to(like).expand_as(like)

    def readable(x: torch.Tensor, p: float, training: bool = True, inplace: bool = False) -> torch.Tensor:
        return x * every_other(x, p) if training and p else x

    monkeypatch.setattr(dropout, "keep_mask", every_other)
    monkeypatch.setattr(torch.nn.functional, "dropout", readable)
    model = small_model(decoder=decoder, num_layers=3, dropout=0.5)
    model.encoder.rnn.dropout = 0.0  # torch's own layers draw their own masks
    assert_same(model, random_batch(LENGTHS))


def test_derivative_along_random_directions():
    """Central differences in float64, an oracle that shares nothing with either path's backward pass."""
    model = small_model(decoder="conditional", hidden_size=4, embedding_size=3)
    batch = random_batch([(3, 2), (2, 3)])
    parameters = dict(model.named_parameters())
    found = run(model, batch, fast=True)
    for seed in range(5):
        torch.manual_seed(seed)
        directions = {name: torch.randn_like(p) for name, p in parameters.items()}
        predicted = sum((found[name] * direction).sum() for name, direction in directions.items() if name in found)
        losses = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                for name, parameter in parameters.items():
                    parameter.add_(directions[name], alpha=step)
            losses.append(run(model, batch, fast=True)["loss"])
            with torch.no_grad():
                for name, parameter in parameters.items():
                    parameter.sub_(directions[name], alpha=step)
        torch.testing.assert_close((losses[0] - losses[1]) / 2e-5, predicted, rtol=1e-5, atol=1e-7)


def test_bf16_stays_near_fp32():
    batch = random_batch(LENGTHS)
    model = small_model(decoder="bahdanau", hidden_size=16).float()
    exact = run(model, batch, fast=True)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = run(model, batch, fast=True)
    for name, value in exact.items():
        assert rounded[name].dtype == torch.float32, name
        assert (rounded[name] - value).norm() <= 0.05 * value.norm() + 1e-3, name


@pytest.mark.parametrize("score", ["additive", "general"])
def test_a_torch_without_private_names_trains_the_same(score: str, monkeypatch: pytest.MonkeyPatch):
    """Also backward through the same graph again."""
    for name, value in (("LINEAR", None), ("REORDER", None), ("PASS", int)):
        monkeypatch.setattr(kernels, name, value)
    model: Any = accelerate(small_model(attention=AttentionConfig(score=score)).float())
    assert kernels.most_rows(model.output.weight) == 0
    pack_weights(model)
    assert PACKED not in vars(model.output)
    batch = random_batch(LENGTHS)
    loss = model(batch).features.pow(2).sum()
    weights = [model.decoder.stack.first.recurrent.weight, model.encoder.rnn.weight_ih_l0]
    first, again = (torch.autograd.grad(loss, weights, retain_graph=True) for _ in range(2))
    expected = torch.autograd.grad(decelerate(model)(batch).features.pow(2).sum(), weights)
    for found in (first, again):
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("score", ["additive", "general"])
def test_a_gradient_that_is_not_asked_for_is_not_added_to_the_next(score: str):
    model: Any = accelerate(small_model(attention=AttentionConfig(score=score)))
    weights = [model.decoder.stack.first.recurrent.weight, model.encoder.rnn.weight_ih_l0]

    batch = random_batch(LENGTHS)
    expected = torch.autograd.grad(model(batch).features.pow(2).sum(), weights)
    loss = model(batch).features.pow(2).sum()
    torch.autograd.grad(loss, [model.decoder.embedding.weight], retain_graph=True)
    for one, other in zip(torch.autograd.grad(loss, weights), expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "conditional"])
def test_products_by_onednn_give_the_same(decoder: str, cell: str, monkeypatch: pytest.MonkeyPatch):
    """In fp32, whatever the processor: the other tests are in double precision, which it does not have."""
    monkeypatch.setattr(kernels, "onednn_is_faster", lambda x: x.dtype == torch.float32)
    model = small_model(decoder=decoder, cell=cell, num_layers=2, hidden_size=16).float()
    for lengths in (LENGTHS, [(1, 1)]):
        batch = random_batch(lengths)
        expected, found = run(model, batch, fast=False), run(model, batch, fast=True)
        for name, value in expected.items():
            assert (found[name] - value).norm() <= 1e-4 * value.norm() + 1e-6, name


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "conditional", "gnmt"])
def test_a_weight_that_changes_before_the_run_back_is_noticed(decoder: str):
    """Gradients would be wrong: products read weights where they are."""
    model = accelerate(small_model(decoder=decoder, num_layers=2))
    batch = random_batch(LENGTHS)
    loss = token_loss(model, model(batch), batch, label_smoothing=0.1)[0]
    with torch.no_grad():
        model.decoder.stack.first.recurrent.weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified inplace"):
        loss.backward()


def test_two_batches_may_be_under_way_at_once():
    """The memory of one is not handed to the other before its backward pass."""
    model = small_model(decoder="luong")
    batches = [random_batch(LENGTHS), random_batch([(4, 4), (2, 6)], seed=1)]
    expected = [run(model, batch, fast=True)["loss"] for batch in batches]
    model.zero_grad()
    losses = [token_loss(model, model(batch), batch, label_smoothing=0.1)[0] for batch in batches]
    both = torch.autograd.grad(losses[0] + losses[1], model.output.weight)[0]
    single = [
        torch.autograd.grad(token_loss(model, model(b), b, label_smoothing=0.1)[0], model.output.weight)[0]
        for b in batches
    ]
    torch.testing.assert_close(both, single[0] + single[1])
    assert all(torch.isfinite(loss) for loss in expected)


@pytest.mark.parametrize("score", ["additive", "general"])
def test_it_can_be_run_back_again(score: str):
    """What the first run back has summed is not in the second's gradients."""
    model = accelerate(small_model(attention=AttentionConfig(score=score), num_layers=2))
    started = model.start(*read(random_batch(LENGTHS)))
    gates = torch.randn(4, 3, 24, dtype=torch.float64, requires_grad=True)
    loss = model.decoder.unroll(gates, started.memory, started.decoder).hidden.square().sum()
    parameters = [p for name, p in model.named_parameters() if name.startswith(("encoder", "decoder.stack.first.rec"))]
    first = torch.autograd.grad(loss, [gates, *parameters], retain_graph=True, allow_unused=True)
    second = torch.autograd.grad(loss, [gates, *parameters], allow_unused=True)
    assert sum(each is not None for each in first) > 5
    for one, other in zip(first, second, strict=True):
        assert one is other is None or torch.equal(one, other)


def read(batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return batch.source, batch.source_mask, batch.source_lengths


@pytest.mark.parametrize("decoder", DECODERS)
def test_the_gradient_of_a_weight_is_one_product_whatever_the_number_of_steps(decoder: str, monkeypatch):
    calls: list[torch.Size] = []

    def counted(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        calls.append(grad.shape)
        return kernels.grad_weight(grad, x)

    monkeypatch.setattr(products, "grad_weight", counted)
    found = []
    for steps in (3, 9):
        calls.clear()
        run(small_model(decoder=decoder, num_layers=2), random_batch([(5, steps), (4, steps - 1)]), fast=True)
        found.append([shape[-1] for shape in calls])
    assert found[0] == found[1]
    assert len(found[0]) >= 3


def test_memory_is_free_when_the_graph_is():
    """Nothing of it is in a cycle, which would stay until Python's collector runs: half a GiB in real trainings."""
    gc.collect()
    gc.disable()
    try:
        factors: list[weakref.ref] = []
        share = products.share
        with pytest.MonkeyPatch.context() as patch:

            def remembered(tensor, factor):
                factors.append(weakref.ref(factor))
                return share(tensor, factor)

            for module in (cells, recurrence, fast_attention):
                patch.setattr(module, "share", remembered)
            run(small_model(attention=AttentionConfig(score="additive")), random_batch(LENGTHS), fast=True)
        assert len(factors) > 5
        assert not any(factor() for factor in factors)
    finally:
        gc.enable()


def test_frozen_parameters_get_no_gradient():
    model = accelerate(small_model(decoder="bahdanau"))
    model.decoder.context.weight.requires_grad_(False)
    batch = random_batch(LENGTHS)
    token_loss(model, model(batch), batch, label_smoothing=0.0)[0].backward()
    assert model.decoder.context.weight.grad is None
    assert model.decoder.stack.first.recurrent.weight.grad is not None


def test_frozen_parameters_of_an_attention_get_none_either():
    model = small_model(attention=AttentionConfig(score="location"))
    model.decoder.attention.requires_grad_(False)
    assert_same(model, random_batch(LENGTHS))
