"""Recordings without a GPU: by a tape with the rules of CUDA graphs. tests/test_gpu.py replays real ones."""

import copy
import gc
import pickle
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config.schema import AttentionConfig
from nmt.fast import recurrence
from nmt.fast.accelerate import accelerate
from nmt.fast.recording import Recorder
from nmt.fast.recurrence import RECORDER
from nmt.models.seq2seq import Seq2Seq
from nmt.training.objective import token_loss
from tests.fast.equality import run
from tests.models.small import name_of, random_batch, small_model, variants

LENGTHS = [(5, 4), (1, 7), (9, 1)]
MORE_LENGTHS = [(7, 9), (2, 3), (1, 1), (3, 5), (4, 4)]


class Tape:
    """What `torch.cuda.make_graphed_callables` returns: arguments, results and gradients are always in the same memory,
    and what the forward pass keeps is in memory of all recordings, so that a backward pass has to come next.
    """

    count = 0
    last: Any = None

    def __init__(
        self, function, arguments: tuple[Tensor, ...], *, num_warmup_iters: int, allow_unused_input: bool, pool: object
    ) -> None:
        assert not torch.is_autocast_enabled("cpu")
        assert not gc.isenabled()
        assert num_warmup_iters > 0
        assert allow_unused_input
        assert pool == "pool"
        Tape.count += 1
        self.function, self.arguments = function, arguments
        self.results = tuple(each.detach().clone() for each in function(*arguments))
        self.grads = [torch.full_like(each, float("nan")) for each in arguments]

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        return Replay.apply(self, *arguments)


class Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tape: Tape, *arguments: Tensor) -> tuple[Tensor, ...]:
        with torch.no_grad():
            for own, given in zip(tape.arguments, arguments, strict=True):
                if own.data_ptr() != given.data_ptr():
                    own.copy_(given)
        with torch.enable_grad():
            Tape.last = ctx.kept = tape.function(*tape.arguments)
        with torch.no_grad():
            for own, result in zip(tape.results, ctx.kept, strict=True):
                own.copy_(result)
        ctx.tape = tape
        return tuple(each.detach() for each in tape.results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        assert Tape.last is ctx.kept, "another replay has overwritten what this one kept"
        wanted = tuple(each for each in ctx.tape.arguments if each.requires_grad)
        pairs = [(kept, grad) for kept, grad in zip(ctx.kept, grads, strict=True) if kept.requires_grad]
        results, results_grads = zip(*pairs, strict=True)
        found = iter(torch.autograd.grad(results, wanted, results_grads, allow_unused=True, retain_graph=True))
        returned: list[Tensor | None] = []
        for own, given in zip(ctx.tape.grads, ctx.tape.arguments, strict=True):
            grad = next(found) if given.requires_grad else None
            returned.append(None if grad is None else own.copy_(grad).detach())
        return None, *returned


@pytest.fixture(autouse=True)
def tape(monkeypatch: pytest.MonkeyPatch) -> type[Tape]:
    monkeypatch.setattr(recurrence, "is_recorded", lambda decoder, device: True)
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", Tape)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=10**9))
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: nullcontext())
    Tape.count, Tape.last = 0, None
    return Tape


STEPWISE = [each for each in variants() if each.get("decoder") != "gnmt" and each.get("input_feeding", True)]


@pytest.mark.parametrize("variant", STEPWISE, ids=name_of)
def test_equals_the_readable_path_batch_after_batch(variant: dict):
    model = small_model(**variant)
    for lengths in (LENGTHS, MORE_LENGTHS, LENGTHS, [(1, 1)]):
        assert_same(model, lengths)
    assert Tape.count == 3


def assert_same(model: Seq2Seq, lengths: list[tuple[int, int]]) -> None:
    expected, found = (run(model, random_batch(lengths, seed=len(lengths)), fast=fast) for fast in (False, True))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-10, msg=partial("{}: {}".format, name))


def test_a_batch_of_about_the_same_size_is_not_recorded_again():
    model = small_model(decoder="luong")
    for lengths in (LENGTHS, [(6, 5), (2, 6), (8, 2)], [(9, 7), (3, 3), (9, 7), (1, 1)]):
        assert_same(model, lengths)
    assert Tape.count == 1


@pytest.mark.parametrize("size", range(1, 600, 7))
def test_rounded_sizes_are_few_and_near(size: int):
    rounded = recurrence.rounded(size)
    assert size <= rounded <= max(size + 7, size * 1.125)
    assert recurrence.rounded(rounded) == rounded


@pytest.mark.parametrize("size", [32, 64, 256, 1_000])
def test_sizes_in_a_range_of_twice_are_at_most_nine(size: int):
    assert len({recurrence.rounded(each) for each in range(size, 2 * size)}) <= 9


def test_gradients_add_up_over_batches():
    """Those of the first are not in memory that the second replay writes."""
    model: Any = accelerate(small_model(decoder="luong"))
    batches = [random_batch(LENGTHS, seed=seed) for seed in (0, 1)]
    summed: dict[str, Tensor] = {}
    for batch in batches:
        model.zero_grad()
        loss_of(model, batch).backward()
        for name, each in model.named_parameters():
            summed[name] = summed.get(name, 0.0) + each.grad.clone()
    model.zero_grad()
    for batch in batches:
        loss_of(model, batch).backward()
    for name, each in model.named_parameters():
        torch.testing.assert_close(each.grad, summed[name], rtol=0, atol=1e-12)


def test_two_batches_may_be_under_way_at_once():
    """The second is computed step by step."""
    model: Any = accelerate(small_model(decoder="luong"))
    batches = [random_batch(LENGTHS), random_batch(MORE_LENGTHS)]
    weight = model.decoder.stack.first.recurrent.weight
    expected = sum(torch.autograd.grad(loss_of(model, batch), weight)[0] for batch in batches)
    losses = [loss_of(model, batch) for batch in batches]
    torch.testing.assert_close(torch.autograd.grad(losses[0] + losses[1], weight)[0], expected, rtol=0, atol=1e-10)
    assert Tape.count == 2


def test_a_forward_pass_that_is_not_differentiated_does_not_keep_the_recording():
    model: Any = accelerate(small_model(decoder="luong"))
    loss = loss_of(model, random_batch(LENGTHS))
    recorder = vars(model.decoder)[RECORDER]
    assert recorder.user() is not None
    del loss
    assert recorder.user() is None


def test_a_change_of_mode_precision_or_of_what_is_frozen_is_recorded_anew():
    model: Any = accelerate(small_model(decoder="luong").float())
    batch = random_batch(LENGTHS)
    for mode in (True, False):
        model.train(mode)
        loss_of(model, batch).backward()
    assert Tape.count == 2
    with torch.autocast("cpu", torch.bfloat16):
        loss_of(model, batch).backward()
    assert Tape.count == 3
    model.decoder.feedback.weight.requires_grad_(False)
    model.zero_grad()
    loss_of(model, batch).backward()
    assert Tape.count == 4
    assert model.decoder.feedback.weight.grad is None


def test_weights_are_read_where_they_are():
    model = small_model(decoder="luong")
    for _ in range(2):
        assert_same(model, LENGTHS)
        with torch.no_grad():
            for each in model.parameters():
                each.mul_(0.9)
    assert Tape.count == 1


def test_what_cannot_be_recorded_is_computed_step_by_step(monkeypatch: pytest.MonkeyPatch, caplog):
    def refuse(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", refuse)
    model = small_model(decoder="luong")
    for _ in range(2):
        assert_same(model, LENGTHS)
    assert caplog.text.count("cannot be recorded as a CUDA graph and is computed step by step") == 1


def test_memory_that_does_not_suffice_is_the_callers_matter(monkeypatch: pytest.MonkeyPatch):
    def exhaust(*arguments: Any, **options: Any) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", exhaust)
    with pytest.raises(torch.OutOfMemoryError):
        loss_of(accelerate(small_model(decoder="luong")), random_batch(LENGTHS))


def test_recordings_take_a_share_of_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=10_000))
    model = small_model(decoder="luong")
    for lengths in (LENGTHS, MORE_LENGTHS, LENGTHS):
        assert_same(model, lengths)
    assert Tape.count == 1


def test_weights_drawn_at_random_are_not_recorded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.undo()
    gpu = torch.device("cuda")
    assert recurrence.is_recorded(small_model(decoder="luong").decoder, gpu)
    assert not recurrence.is_recorded(small_model(decoder="luong").decoder, torch.device("cpu"))
    sampled = AttentionConfig(normalizer="hard")
    assert not recurrence.is_recorded(small_model(decoder="luong", attention=sampled).decoder, gpu)


def test_a_copy_of_the_model_has_no_recordings():
    model: Any = accelerate(small_model(decoder="luong"))
    loss_of(model, random_batch(LENGTHS)).backward()
    assert len(vars(model.decoder)[RECORDER].recordings) == 1
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert isinstance(vars(other.decoder)[RECORDER], Recorder)
        assert not vars(other.decoder)[RECORDER].recordings


def loss_of(model: Any, batch: Any) -> Tensor:
    return token_loss(model, model(batch), batch, label_smoothing=0.1).objective
