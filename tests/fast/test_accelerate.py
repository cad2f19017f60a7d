"""Swapping the fast path in and out."""

import copy
import itertools
import pickle
from functools import partial

import pytest
import torch

from nmt.config.schema import SearchConfig
from nmt.fast.accelerate import accelerate, decelerate, without_fast_path
from nmt.fast.objective import token_loss as chunked_loss
from nmt.models.decoder import DECODERS
from nmt.models.seq2seq import Seq2Seq
from nmt.text.tokenizer import Tokenizers
from nmt.text.vocabulary import Vocabulary
from nmt.translator import Translator
from tests.fast.equality import run
from tests.models.small import random_batch, small_model, variants

UNUSED = Vocabulary(b"a\nb\n")


def swapped(model: Seq2Seq) -> set[str]:
    """Names of replaced methods, by the module that has them."""
    return {
        f"{type(module).__name__}.{name}"
        for module in model.modules()
        for name in ("forward", "recur", "unroll", "read_words", "score_pairs", "predict")
        if name in vars(module)
    }


def test_nothing_of_a_checkpoint_changes(model: Seq2Seq) -> None:
    """Neither names nor order nor values of weights; and `decelerate` leaves no trace."""
    before, attributes = copy.deepcopy(model.state_dict()), {id(m): set(vars(m)) for m in model.modules()}
    after = accelerate(model).state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert swapped(model)
    decelerate(model)
    assert not swapped(model)
    assert {id(m): set(vars(m)) for m in model.modules()} == attributes


def test_every_decoder_is_known_to_the_tests_of_equality() -> None:
    """tests/fast/test_recurrence.py compares values and gradients for each of `variants`."""
    assert {variant.get("decoder", "bahdanau") for variant in variants()} == set(DECODERS)


@pytest.mark.parametrize("is_fast", [True, False])
def test_probabilities_sum_to_1_in_bf16(is_fast: bool) -> None:
    """A logarithm of 16 bits is wrong by up to a 512th of itself, so a nucleus of 0.99 might never be full."""
    model = small_model().float().eval()
    model = accelerate(model) if is_fast else model
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        log_probs = model.predict(10 * torch.randn(50, model.decoder.readout.size))
    torch.testing.assert_close(log_probs.double().exp().sum(dim=1), torch.ones(50, dtype=torch.double))


def test_no_two_parameters_share_a_gradient(model: Seq2Seq) -> None:
    """An optimizer that scales gradients in place would scale a shared one twice."""
    run(model, random_batch([(5, 4), (1, 7)]), fast=True)
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    ranges = sorted((g.data_ptr(), g.data_ptr() + g.numel() * g.element_size(), n) for n, g in gradients.items())
    for (_, end, name), (begin, _, other) in itertools.pairwise(ranges):
        assert end <= begin, f"{name} and {other} share a gradient"


def test_gradients_of_batches_add_up(model: Seq2Seq) -> None:
    batches = [random_batch(lengths) for lengths in ([(5, 4), (1, 7)], [(3, 3)], [(2, 6), (4, 1)])]
    expected = [run(model, batch, fast=False) for batch in batches]
    accelerate(model).zero_grad()
    for batch in batches:
        torch.manual_seed(0)
        decoded = model(batch)
        loss = chunked_loss(model, decoded, batch, label_smoothing=0.1)[0]
        (loss + (decoded.weights[batch.target_mask] ** 2).sum()).backward()
    for name, parameter in model.named_parameters():
        if name in expected[0]:
            total = sum(each[name] for each in expected)
            torch.testing.assert_close(parameter.grad, total, rtol=0, atol=1e-10, msg=partial("{}: {}".format, name))


def test_a_copy_is_accelerated_by_itself() -> None:
    """The moving average of the weights is a deep copy: its methods must read its own weights."""
    model, batch = accelerate(small_model()), random_batch([(5, 4), (1, 7)])
    twin = copy.deepcopy(model)
    assert swapped(twin) == swapped(model)
    with torch.no_grad():
        before = twin(batch).features
        for parameter in model.parameters():
            parameter.zero_()
        assert torch.equal(twin(batch).features, before)


def test_an_accelerated_model_can_be_pickled_and_quantized() -> None:
    model, batch = accelerate(small_model().float()), random_batch([(5, 4), (1, 7)])
    again = pickle.loads(pickle.dumps(model))
    assert swapped(again) == swapped(model)
    assert torch.equal(again(batch).features, model(batch).features)
    translator = Translator(again, Tokenizers(UNUSED, UNUSED), SearchConfig(), torch.device("cpu"), "int8")
    with torch.inference_mode():
        found = translator.model.attend(batch)
    torch.testing.assert_close(found, model.attend(batch), rtol=0, atol=0.1)


def test_within_restored_the_model_runs_as_it_is_written() -> None:
    model = accelerate(small_model())
    names = swapped(model)
    with without_fast_path(model):
        assert not swapped(model)
    assert swapped(model) == names
    with without_fast_path(decelerate(model)):
        pass
    assert not swapped(model)
