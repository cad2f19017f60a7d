"""Dropout, in its three kinds: of numbers, of numbers for all steps of a sentence, of words."""

import pytest
import torch

from nmt.models.layers import GRU, Dropout, Embedding, Stack
from nmt.text.tokenizer import PAD
from tests.models.small import random_batch, small_model

RATE = 0.25


def test_without_sharing_it_is_torchs_own():
    x = torch.randn(3, 4, 5)
    torch.manual_seed(1)
    found = Dropout(RATE, shared=False)(x, 1)
    torch.manual_seed(1)
    assert torch.equal(found, torch.nn.functional.dropout(x, RATE))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_numbers_along_the_axis_share_one_draw(axis: int):
    """Of the others each has its own: as many fall as chance has it, and the rest are divided by 1 - p."""
    x = torch.ones(60, 50, 40)
    found = Dropout(RATE, shared=True)(x, axis)
    first = found.narrow(axis, 0, 1)
    assert torch.equal(found, first.expand_as(found))
    assert set(first.flatten().tolist()) == {0.0, torch.tensor(1 / (1 - RATE)).item()}
    dropped, count = (first == 0).double().mean().item(), first.numel()
    assert abs(dropped - RATE) < 5 * (RATE * (1 - RATE) / count) ** 0.5  # five standard deviations


@pytest.mark.parametrize("shared", [True, False])
def test_it_is_the_identity_where_nothing_is_trained_or_dropped(shared: bool):
    x, before = torch.randn(3, 4), torch.get_rng_state()
    assert Dropout(0.5, shared=shared).eval()(x, 0) is x
    assert Dropout(0.0, shared=shared)(x, 0) is x
    assert torch.equal(torch.get_rng_state(), before)


def test_word_dropout_drops_whole_words_one_by_one():
    embedding = Embedding(11, 6, 0.0, word_dropout=RATE)
    torch.nn.init.normal_(embedding.weight)
    tokens = torch.full((200, 100), 5)
    tokens[:, -1] = PAD
    ratio = embedding(tokens)[:, :-1] / embedding.eval()(tokens)[:, :-1]
    assert torch.equal(ratio, ratio[..., :1].expand_as(ratio))
    assert set(ratio.flatten().tolist()) == {0.0, torch.tensor(1 / (1 - RATE)).item()}
    kept = ratio[..., 0] > 0
    count = kept.numel()
    assert abs((~kept).double().mean().item() - RATE) < 5 * (RATE * (1 - RATE) / count) ** 0.5
    agreement = (kept[:, 1:] == kept[:, :-1]).double().mean().item()  # equal words of a sentence fall independently
    assert abs(agreement - (RATE**2 + (1 - RATE) ** 2)) < 0.02


@pytest.mark.parametrize("step_axis", [0, 1])
def test_a_locked_embedding_drops_the_same_numbers_of_every_word_of_a_sentence(step_axis: int):
    embedding = Embedding(11, 40, 0.5, locked=True)
    torch.nn.init.ones_(embedding.weight)
    sentences = embedding(torch.full((7, 7), 5), step_axis).transpose(0, 1 - step_axis)  # [sentence, step, number]
    assert torch.equal(sentences, sentences[:, :1].expand_as(sentences))
    assert len({tuple(row.tolist()) for row in sentences[:, 0]}) == 7


@pytest.mark.parametrize("locked", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"decoder": "bahdanau"},
        {"decoder": "conditional", "readout": "linear"},
        {"decoder": "luong", "tied_embeddings": "target"},
        {"decoder": "gnmt", "self_attention_heads": 2},
    ],
)
def test_locked_dropout_is_at_every_place_but_between_layers(options: dict, locked: bool):
    """One mask for all steps of a sentence, wherever its axis is; the first is that of sentences, or the second."""
    model = small_model(dropout=0.5, locked_dropout=locked, num_layers=2, embedding_size=16, **options)
    masks: dict[int, torch.Tensor] = {}

    def note(module: torch.nn.Module, inputs: tuple[torch.Tensor, int], output: torch.Tensor) -> None:
        if module.p:
            masks[id(module)] = (output == 0).transpose(0, 0 if len(output) == 3 else 1)  # [sentence, step, number]

    places = [module for module in model.modules() if isinstance(module, Dropout)]
    for place in places:
        place.register_forward_hook(note)
    model(random_batch([(6, 7)] * 3))
    assert masks.keys() == {id(place) for place in places if place.p}
    assert len(masks) == (5 if "self_attention_heads" in options else 4)
    for mask in masks.values():
        assert len({tuple(row) for row in mask.flatten(1).tolist()}) == 3
        assert bool((mask == mask[:, :1]).all()) is locked
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    assert all(type(stack.dropout) is torch.nn.Dropout and stack.dropout.p == 0.5 for stack in stacks)


def test_words_are_dropped_on_both_sides():
    model = small_model(word_dropout=RATE, locked_dropout=True, dropout=0.4, embedding_dropout=0.1)
    for embedding in (model.encoder.embedding, model.decoder.embedding):
        assert (embedding.word_dropout.p, embedding.dropout.p, embedding.dropout.shared) == (RATE, 0.1, True)


def test_dropout_between_the_layers_of_a_stack():
    stack = Stack(GRU(4, 4), [GRU(4, 4)], dropout=1.0 - 1e-7)
    states = (torch.ones(1, 1, 4), torch.ones(1, 1, 4))
    gates = torch.ones(1, 1, 12)
    unread = stack.upper[0](stack.upper[0].inputs(torch.zeros(1, 1, 4)), states[1])
    assert torch.equal(stack.train()(gates, states)[1], unread)
    assert not torch.equal(stack.eval()(gates, states)[1], unread)
