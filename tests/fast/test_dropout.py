"""Dropout with cheap random bits; and whole models with dropout on against the readable path."""

from typing import Any

import pytest
import torch

from nmt.fast import dropout
from nmt.fast.accelerate import accelerate
from nmt.fast.dropout import LEVELS, keep_mask
from nmt.models.decoder import DECODERS
from nmt.models.layers import Dropout
from tests.fast.equality import assert_same, run
from tests.models.small import random_batch, small_model


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.9])
def test_share_and_scale(rate: float):
    torch.manual_seed(0)
    mask = keep_mask(torch.empty(500, 400), rate)
    kept = (mask > 0).double().mean().item()
    assert abs(kept - (1 - rate)) < 5 * (rate * (1 - rate) / mask.numel()) ** 0.5  # five standard deviations
    torch.testing.assert_close(mask.max().item(), 1 / (1 - round(rate * LEVELS) / LEVELS), rtol=1e-6, atol=0)


def test_a_rate_next_to_one_keeps_something():
    mask = keep_mask(torch.empty(500, 4000), 0.9999999)
    assert set(mask.unique().tolist()) == {0.0, float(LEVELS)}


def test_neighbors_are_independent():
    """The four numbers of a word, and neighboring words, agree as often as chance has it."""
    torch.manual_seed(0)
    kept = keep_mask(torch.empty(400_000), 0.5) > 0
    for distance in (1, 2, 3, 4, 5):
        agreement = (kept[distance:] == kept[:-distance]).double().mean().item()
        assert abs(agreement - 0.5) < 5 * 0.5 / len(kept) ** 0.5


def test_follows_the_generator():
    torch.manual_seed(1)
    first = keep_mask(torch.empty(7, 5), 0.3)
    torch.manual_seed(1)
    assert torch.equal(keep_mask(torch.empty(7, 5), 0.3), first)
    assert not torch.equal(keep_mask(torch.empty(7, 5), 0.3), first)


def test_identity_in_evaluation_and_at_rate_zero():
    x = torch.randn(3, 4)
    assert accelerate(torch.nn.Dropout(0.5)).eval()(x) is x
    assert accelerate(torch.nn.Dropout(0.0))(x) is x


def test_gradient_passes_through_the_mask():
    x = torch.ones(50, requires_grad=True)
    y = accelerate(torch.nn.Dropout(0.4))(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())


LENGTHS = [(5, 4), (1, 7), (9, 1)]


@pytest.mark.parametrize("shared", [True, False])
def test_dropout_of_numbers_and_of_whole_axes(shared: bool):
    x = torch.ones(300, 30, 20)
    module = accelerate(Dropout(0.3, shared=shared))
    found = module(x, 1)
    alike = found.eq(found[:, :1]).all()
    assert bool(alike) is shared
    share = (found == 0).double()[:, : 1 if shared else None].mean().item()
    assert abs(share - 0.3) < 0.04
    assert found.max().item() == pytest.approx(1 / 0.7, rel=1e-4)
    assert module.eval()(x, 1) is x


def parities(x: torch.Tensor) -> torch.Tensor:
    """Twice the numbers whose indices have an odd sum: the same whichever of batch and steps comes first."""
    indices = (torch.arange(size).view(-1, *[1] * (x.dim() - 1 - axis)) for axis, size in enumerate(x.shape))
    return (2 * (sum(indices) % 2)).to(x)


@pytest.fixture
def same_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both paths drop the same: each draws in its own way, and in its own order of batch and steps."""

    def readable(x: torch.Tensor, p: float, training: bool = True, inplace: bool = False) -> torch.Tensor:
        return x * parities(x) if p and training else x

    monkeypatch.setattr(dropout, "keep_mask", lambda like, rate: parities(like))
    monkeypatch.setattr(torch.nn.functional, "dropout", readable)


KINDS: dict[str, dict[str, Any]] = {
    "numbers": {},
    "locked": {"locked_dropout": True},
    "words": {"embedding_dropout": 0.0, "word_dropout": 0.5},
    "all": {"locked_dropout": True, "word_dropout": 0.5},
}


@pytest.mark.usefixtures("same_masks")
@pytest.mark.parametrize("consistency", [0.0, 2.0])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decoder", DECODERS)
def test_equals_the_readable_path_under_dropout(decoder: str, kind: str, consistency: float):
    model = small_model(decoder=decoder, dropout=0.5, num_layers=2 if decoder == "gnmt" else 1, **KINDS[kind])
    model.encoder.rnn.dropout = model.decoder.stack.dropout.p = 0.0  # between layers: test_recurrence.py
    assert_same(model, random_batch(LENGTHS), consistency=consistency)


@pytest.mark.usefixtures("same_masks")
@pytest.mark.parametrize("options", [{"self_attention_heads": 2}, {"tied_embeddings": "all"}, {"readout": "linear"}])
def test_so_do_the_options(options: dict):
    model = small_model(decoder="conditional", dropout=0.5, locked_dropout=True, word_dropout=0.5, **options)
    assert_same(model, random_batch(LENGTHS), consistency=2.0)


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "conditional", "fixed_context"])
def test_locked_masks_are_the_same_numbers_of_the_generator(decoder: str):
    """Nothing is patched here: a mask for all steps has no order of batch and steps."""
    model, batch = small_model(decoder=decoder, dropout=0.4, locked_dropout=True), random_batch(LENGTHS)
    assert_same(model, batch, consistency=1.0)
    assert run(model, batch, fast=True)["loss"] != run(model.eval(), batch, fast=True)["loss"]
