"""Exported graphs compute what the model does, for every part, with any number of sentences, tokens and hypotheses."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.attention.attention import Memory
from nmt.config.schema import AttentionConfig
from nmt.data.batch import pad
from nmt.errors import UserError
from nmt.exporting.check import signature
from nmt.exporting.graphs import quantize_graph, write_graphs
from nmt.models.decoder import DECODERS, Bahdanau, DecoderState, Emission
from nmt.models.seq2seq import Seq2Seq
from nmt.text.tokenizer import BOS
from tests.exporting.exported import Exported, largest_difference
from tests.models.small import name_of, small_model, variants

# One of each kind; all compositions are among the slow tests.
SOME: list[dict[str, Any]] = [
    {"decoder": "bahdanau"},
    {"decoder": "luong", "cell": "lstm", "attention": AttentionConfig(score="general", normalizer="entmax15")},
    {"decoder": "conditional", "num_layers": 2, "attention": AttentionConfig(normalizer="sparsemax")},
    {"decoder": "gnmt", "cell": "lstm", "num_layers": 3, "attention": AttentionConfig(score="dot", window="local_p")},
    {"decoder": "luong", "input_feeding": False, "attention": AttentionConfig(window="local_m", radius=1)},
    {"attention": AttentionConfig(score="location", basis="radial", normalizer="hard")},
    {"attention": AttentionConfig(score="gaussian", num_heads=2, projection="learned"), "self_attention_heads": 2},
    {"attention": AttentionConfig(coverage="fertility"), "tied_embeddings": "all"},
    {"decoder": "fixed_context"},
]
COMPOSITIONS = [
    {"decoder": d, "cell": c, "num_layers": 2, "attention": AttentionConfig(score=s, normalizer=n)}
    for d, c, s, n in itertools.product(
        ("bahdanau", "luong", "conditional", "gnmt"), ("gru", "lstm"), ("additive", "general"), ("softmax", "entmax15")
    )
]


@pytest.fixture
def exported(tmp_path: Path) -> Callable[[Seq2Seq], Exported]:
    def export(model: Seq2Seq) -> Exported:
        paths = tmp_path / "encoder.onnx", tmp_path / "step.onnx"
        write_graphs(model, *paths)
        return Exported(*paths)

    return export


def model_of(variant: dict[str, Any]) -> Seq2Seq:
    return small_model(**variant).float().eval()


@pytest.mark.parametrize("variant", SOME, ids=name_of)
def test_graphs_compute_what_the_model_does(variant: dict[str, Any], exported: Callable[..., Exported]) -> None:
    model = model_of(variant)
    assert largest_difference(model, exported(model), batches=4) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "batches"), [*((v, 200) for v in COMPOSITIONS), *((v, 20) for v in variants())])
def test_graphs_of_every_composition(variant: dict[str, Any], batches: int, exported: Callable[..., Exported]) -> None:
    model = model_of(variant)
    assert largest_difference(model, exported(model), batches) < 1e-5


def test_axes_have_any_size(tmp_path: Path) -> None:
    paths = tmp_path / "encoder.onnx", tmp_path / "step.onnx"
    write_graphs(model_of({"decoder": "luong", "attention": AttentionConfig(coverage="accumulated")}), *paths)
    encoder, step = map(signature, paths)
    assert encoder["inputs"] == {"source": "tensor(int64) [batch, source]", "lengths": "tensor(int64) [batch]"}
    memory = {
        "keys": "tensor(float) [batch, source, 9]",
        "values": "tensor(float) [batch, source, 8]",
        "mask": "tensor(bool) [batch, source]",
    }
    states = {
        "layer_0": "tensor(float) [batch, beam, 8]",
        "feedback": "tensor(float) [batch, beam, 8]",
        "past": "tensor(float) [batch, beam, source]",
    }
    first = {name: shape.replace("beam", "1") for name, shape in states.items()}
    assert encoder["outputs"] == memory | first
    assert step["inputs"] == {"tokens": "tensor(int64) [batch, beam]", **memory, **states}
    assert step["outputs"] == {
        "log_probs": "tensor(float) [batch, beam, 11]",
        "weights": "tensor(float) [batch, beam, source]",
        **{f"next_{name}": shape for name, shape in states.items()},
    }


def test_padding_changes_nothing(exported: Callable[..., Exported]) -> None:
    graphs = exported(model_of({"cell": "lstm", "num_layers": 2}))
    source, mask, lengths = pad([np.array(ids, dtype=np.int32) for ids in ([4, 5], [6], [7, 8, 9, 10, 4, 5, 6])])
    together = graphs.step(torch.full((3, 1), BOS), graphs.start(source, mask, lengths))
    for row, length in enumerate(lengths.tolist()):
        alone = graphs.start(source[row : row + 1, :length], mask[row : row + 1, :length], lengths[row : row + 1])
        step = graphs.step(torch.tensor([[BOS]]), alone)
        torch.testing.assert_close(step.log_probs[0], together.log_probs[row], atol=1e-6, rtol=0)
        assert not together.weights[row, :, length:].any()


class Doubting(Bahdanau):
    """Depends on values in Python: tracing would write down what it saw."""

    def advance(self, gates: Tensor, memory: Memory, state: DecoderState) -> tuple[DecoderState, Emission]:
        return super().advance(gates if gates.sum() > 0 else 2 * gates, memory, state)


class Ordering(Bahdanau):
    """Has an operation that ONNX has not."""

    def advance(self, gates: Tensor, memory: Memory, state: DecoderState) -> tuple[DecoderState, Emission]:
        return super().advance(gates + torch.special.zeta(gates, gates), memory, state)


@pytest.mark.parametrize(
    ("decoder", "reason"),
    [(Doubting, "test_graphs.py line [0-9]+: Converting a tensor to a Python boolean"), (Ordering, "zeta")],
)
def test_what_has_no_fixed_graph_is_refused(
    decoder: type[Bahdanau], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setitem(DECODERS, "own", decoder)
    with pytest.raises(UserError, match=rf"cannot be exported: its step has no fixed graph: .*{reason}"):
        write_graphs(model_of({"decoder": "own"}), tmp_path / "encoder.onnx", tmp_path / "step.onnx")
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("variant", SOME, ids=name_of)
def test_graphs_of_8_bit_integers(variant: dict[str, Any], exported: Callable[..., Exported], tmp_path: Path) -> None:
    """They run, and compute something near: with 6 to 8 numbers a vector, errors are large."""
    model = model_of(variant)
    exported(model)
    for name in ("encoder", "step"):
        quantize_graph(tmp_path / f"{name}.onnx", tmp_path / f"{name}.int8.onnx")
    small = Exported(tmp_path / "encoder.int8.onnx", tmp_path / "step.int8.onnx")
    assert 1e-4 < largest_difference(model, small, batches=2) < 2
