"""Recorded chains, on the CPU by a tape with the rules of a CUDA graph; tests/test_gpu.py has them on a GPU."""

import copy
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.schema import AttentionConfig
from nmt.data.batch import Batch
from nmt.fast import recording
from nmt.fast.attention import closed_form
from nmt.fast.parallel import needs_much_memory
from nmt.fast.recording import Shape, round_up
from nmt.models.decoder import Feeding
from nmt.models.embedding import Embedded
from nmt.models.seq2seq import Seq2Seq
from nmt.training.objective import token_loss
from tests.fast import tape
from tests.fast.equality import assert_same, run
from tests.models.small import random_batch, small_model

LENGTHS = [(5, 4), (1, 7), (9, 1)]
SAME_BUCKET = [(8, 6), (2, 3), (7, 5), (1, 1)]  # other lengths, and another number of rows


@pytest.fixture(autouse=True)
def taped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(recording.RECORDERS, "cpu", lambda device: tape.record)
    recording.OF_DECODERS.clear()
    yield
    recording.OF_DECODERS.clear()


def recordings(model: Seq2Seq) -> list[recording.Recording]:
    every = recording.OF_DECODERS[model.decoder][torch.device("cpu")].recordings
    return [each for each in every.values() if each is not None]


def records(model: Seq2Seq) -> bool:
    """Tell whether a model's chain can be recorded: if it has one, and nothing of it is left to autograd."""
    decoder = model.decoder
    if not isinstance(decoder, Feeding) or closed_form(decoder.attention) is None:
        return False
    return getattr(decoder, "feedback", True) is not None or needs_much_memory(decoder.attention)


def change(model: Seq2Seq) -> None:
    """As an optimizer does: in place."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)


def test_a_recording_equals_the_readable_path(model: Seq2Seq):
    """When it is made, on other sentences of the same bucket, and with other weights."""
    for lengths in (LENGTHS, LENGTHS, SAME_BUCKET, LENGTHS):
        assert_same(model, random_batch(lengths, seed=len(lengths)))
        change(model)
    if records(model):
        assert len(recordings(model)) == 1
    else:
        assert model.decoder not in recording.OF_DECODERS


@pytest.mark.parametrize("score", ["additive", "concat", "dot", "scaled_dot", "general"])
@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax", "entmax15"])
def test_it_does_for_every_closed_form(normalizer: str, score: str):
    model = small_model(attention=AttentionConfig(normalizer=normalizer, score=score))
    for lengths in (LENGTHS, LENGTHS, SAME_BUCKET):
        assert_same(model, random_batch(lengths, seed=len(lengths)))
    assert len(recordings(model)) == 1


def test_the_recording_is_what_runs(monkeypatch: pytest.MonkeyPatch):
    model = small_model()
    for _ in range(2):
        run(model, random_batch(LENGTHS), fast=True)

    def chain(decoder: Feeding, task: object) -> None:
        raise AssertionError("a chain is prepared again")

    monkeypatch.setattr(type(model.decoder), "chain", chain)
    assert run(model, random_batch(SAME_BUCKET), fast=True)["loss"].isfinite()


@pytest.mark.parametrize("score", ["additive", "general"])
def test_casts_of_weights_are_recorded(score: str):
    """Under autocast products are in bf16: a recording must cast the weights again, as they have changed."""
    attention = AttentionConfig(score=score)
    model = small_model(decoder="conditional", hidden_size=16, attention=attention).float()
    batch = random_batch(LENGTHS)

    def update() -> dict[str, torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            return run(model, batch, fast=True)

    for _ in range(2):
        update()
        change(model)
    recorded = update()
    assert len(recordings(model)) == 1
    recording.RECORDERS.pop("cpu")
    expected = update()
    for name, value in expected.items():
        torch.testing.assert_close(recorded[name], value, rtol=0.02, atol=0.02, msg=name)


def loss_of(model: Seq2Seq, batch: Batch) -> torch.Tensor:
    return token_loss(model, model(batch), batch, label_smoothing=0.1).objective


def gradients(model: Seq2Seq, loss: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True))


def test_dropout_is_drawn_anew_whenever_a_recording_runs():
    model = small_model(num_layers=3, dropout=0.5)
    model.encoder.rnn.dropout = model.encoder.state_dropout.p = 0.0
    batch = random_batch(LENGTHS)
    hidden = []
    for _ in range(4):
        state = model.start(batch.source, batch.source_mask, batch.source_lengths)
        embedded = torch.ones(8, 3, model.decoder.embedding.embedding_dim, dtype=torch.float64)
        hidden.append(model.decoder.fast_path(Embedded(embedded), state.memory, state.decoder).hidden.detach())
    assert len(recordings(model)) == 1
    assert not torch.equal(hidden[2], hidden[3])


def test_a_second_batch_under_way_runs_on_memory_of_its_own():
    model = small_model(decoder="luong")
    batches = [random_batch(LENGTHS, seed=seed) for seed in (0, 1)]
    expected = [gradients(model, loss_of(model, batch)) for batch in batches]
    losses = [loss_of(model, batch) for batch in batches]
    assert len(recordings(model)) == 1
    found = [gradients(model, loss) for loss in losses]
    torch.testing.assert_close(found, expected)


def test_what_a_recording_returns_is_not_overwritten_by_the_next():
    model = small_model(decoder="luong", readout="linear")
    for _ in range(2):
        run(model, random_batch(LENGTHS), fast=True)
    batches = [random_batch(LENGTHS, seed=seed) for seed in (0, 1)]
    outputs, found = [], []
    for batch in batches:
        outputs.append([each.detach() for each in decode_of(model, batch)])
        found.append(gradients(model, loss_of(model, batch)))
    recording.RECORDERS.pop("cpu")
    for batch, kept, gradient in zip(batches, outputs, found, strict=True):
        torch.testing.assert_close(kept, decode_of(model, batch))
        torch.testing.assert_close(gradient, gradients(model, loss_of(model, batch)))


def decode_of(model: Seq2Seq, batch: Batch) -> list[torch.Tensor]:
    """Return what the decoder's recurrence emits, before the readout."""
    state = model.start(batch.source, batch.source_mask, batch.source_lengths)
    embedded = model.decoder.embedding.shared(batch.target_in.t())
    emission = model.decoder.fast_path(embedded, state.memory, state.decoder)
    return [emission.hidden, emission.context, emission.weights]


def test_a_loss_that_leaves_the_weights_out_may_follow_one_with_them():
    model = small_model()
    batch = random_batch(LENGTHS)
    for _ in range(3):
        run(model, batch, fast=True)  # the weights are in its loss
    found = gradients(model, loss_of(model, batch))
    recording.RECORDERS.pop("cpu")
    torch.testing.assert_close(found, gradients(model, loss_of(model, batch)))


def test_a_batch_that_is_never_run_back_does_not_stand_in_the_way():
    model = small_model()
    for _ in range(3):
        loss_of(model, random_batch(LENGTHS))
    assert recording.OF_DECODERS[model.decoder][torch.device("cpu")].under_way() is None
    assert_same(model, random_batch(LENGTHS))


def test_weights_that_moved_are_recorded_anew():
    model = small_model()
    for _ in range(2):
        assert_same(model, random_batch(LENGTHS))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data = parameter.data.clone() * 1.5
    for _ in range(2):
        assert_same(model, random_batch(LENGTHS))
    assert len(recordings(model)) == 2


def test_a_model_with_recordings_can_be_copied():
    """Averaged weights are a copy."""
    model = small_model()
    for _ in range(2):
        assert_same(model, random_batch(LENGTHS))
    twin = copy.deepcopy(model)
    change(twin)
    assert_same(twin, random_batch(LENGTHS))
    assert_same(model, random_batch(LENGTHS))


def test_without_a_gradient_nothing_is_recorded():
    model = small_model()
    with torch.no_grad():
        for _ in range(3):
            model(random_batch(LENGTHS))
    assert model.decoder not in recording.OF_DECODERS


def test_shapes_beyond_the_limit_run_unrecorded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recording, "LIMIT", 1)
    model = small_model()
    for lengths in (LENGTHS, LENGTHS, [(40, 40)], [(40, 40)]):
        assert_same(model, random_batch(lengths))
    assert len(recordings(model)) == 1


def test_a_weight_that_takes_the_place_of_another_gets_its_gradient():
    model = small_model(decoder="bahdanau")
    for _ in range(2):
        assert_same(model, random_batch(LENGTHS))
    model.decoder.context.weight = torch.nn.Parameter(model.decoder.context.weight.data)  # where the other was
    assert_same(model, random_batch(LENGTHS))
    assert model.decoder.context.weight.grad is not None


def test_where_recording_fails_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch):
    def fail(work: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setitem(recording.RECORDERS, "cpu", lambda device: fail)
    model = small_model()
    assert_same(model, random_batch(LENGTHS))
    with pytest.raises(RuntimeError, match=r"model\.fast=off.*not permitted"):
        run(model, random_batch(LENGTHS), fast=True)


@given(st.integers(1, 5_000), st.sampled_from([2, 8]))
def test_rounding_adds_a_quarter_at_most(number: int, least: int):
    rounded = round_up(number, least)
    assert number <= rounded < number + max(least, number / 4)
    assert rounded % least == 0
    assert round_up(rounded, least) == rounded


def test_there_are_few_shapes():
    shapes = {Shape(steps, rows, length).rounded() for steps in range(1, 65) for rows in (60, 64) for length in (9, 10)}
    assert len(shapes) == 16
