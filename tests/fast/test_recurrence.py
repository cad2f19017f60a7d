"""The fast path against the readable one: values and gradients, for every decoder, cell, score and option."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.attention.normalizers import NORMALIZERS
from nmt.attention.scores import SCORES
from nmt.config.schema import AttentionConfig
from nmt.fast import attention as fast_attention
from nmt.fast import dropout, kernels
from nmt.fast import stack as fast_stack
from nmt.fast.accelerate import accelerate
from nmt.fast.attention import attention_steps
from nmt.fast.objective import token_loss
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

    def readable(x: torch.Tensor, p: float, training: bool, inplace: bool = False) -> torch.Tensor:
        return x * every_other(x, p) if training and p else x

    for module in (dropout, fast_stack):
        monkeypatch.setattr(module, "keep_mask", every_other)
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


@pytest.mark.parametrize("cached", [1, 160, 10**9])
def test_energies_of_some_rows_at_a_time_are_those_of_all(cached: int, monkeypatch: pytest.MonkeyPatch):
    """Of each row by itself, of two rows and then one, and of all three."""
    monkeypatch.setattr(fast_attention, "CACHED", cached)
    model: Any = small_model(attention=AttentionConfig(score="additive"))
    batch = random_batch(LENGTHS)
    keys = torch.empty(3, batch.source.shape[1], model.decoder.attention.score.energy.in_features)
    assert fast_attention.rows_at_a_time(keys) == {1: 1, 160: 2, 10**9: 3}[cached], keys.shape
    assert_same(model, batch)


@pytest.mark.parametrize("score", ["additive", "general"])
def test_it_runs_back_in_its_own_precision_whatever_autocast_says_then(score: str):
    batch = random_batch(LENGTHS)
    model = accelerate(small_model(hidden_size=16, attention=AttentionConfig(score=score)).float())
    memory = model.start(batch.source, batch.source_mask, batch.source_lengths).memory
    gates = model.decoder.read_words(batch.target_in.t()).gates.detach()
    state = model.start(batch.source, batch.source_mask, batch.source_lengths).decoder

    def gradients(within: bool) -> tuple[torch.Tensor, ...]:
        hidden = model.decoder.unroll(gates, memory, state).hidden
        with torch.autocast("cpu", torch.bfloat16, enabled=within):
            inputs = [memory.keys, model.decoder.stack.first.recurrent.weight]
            return torch.autograd.grad(hidden.square().sum(), inputs, retain_graph=True)

    assert all(map(torch.equal, gradients(within=True), gradients(within=False)))


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
    """Gradients would be wrong: a chain reads weights where they are."""
    model = accelerate(small_model(decoder=decoder, num_layers=2))
    batch = random_batch(LENGTHS)
    loss = token_loss(model, model(batch), batch, label_smoothing=0.1)[0]
    with torch.no_grad():
        model.decoder.stack.first.recurrent.weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
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


def test_a_second_backward_pass_is_refused():
    model = accelerate(small_model())
    batch = random_batch(LENGTHS)
    loss = token_loss(model, model(batch), batch, label_smoothing=0.0)[0]
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="once"):
        loss.backward()


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


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("window", ["global", "local_m"])
def test_the_commonest_attentions_have_their_own_derivative(score: str, window: str, normalizer: str):
    """Any other composition runs as it is written."""
    model = small_model(attention=AttentionConfig(score=score, window=window, normalizer=normalizer))
    own = (
        window == "global" and normalizer != "hard" and score in {"additive", "concat", "dot", "scaled_dot", "general"}
    )
    assert (attention_steps(model.decoder.attention) is not None) is own
    assert ("unroll" in vars(accelerate(model).decoder)) is own
