"""Differences of graphs from their model are found; where there are none, a search finds the same."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.schema import AttentionConfig
from nmt.exporting.check import largest_differences
from nmt.exporting.graphs import MEMORY, write_graphs
from nmt.models.seq2seq import Seq2Seq
from nmt.search.beam import beam_search
from nmt.search.hypothesis import StepModel
from tests.exporting.exported import Exported
from tests.models.small import random_batch, small_model


@pytest.fixture(scope="module")
def model() -> Seq2Seq:
    attention = AttentionConfig(coverage="accumulated", window="local_m", radius=2)
    return small_model(decoder="luong", num_layers=2, attention=attention).float().eval()


@pytest.fixture
def paths(model: Seq2Seq, tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "encoder.onnx", tmp_path / "step.onnx"
    write_graphs(model, *paths)
    return paths


def test_a_search_finds_the_same(model: Seq2Seq, paths: tuple[Path, Path]) -> None:
    exported = Exported(*paths)
    assert isinstance(exported, StepModel)
    batch = random_batch([(length, 1) for length in (5, 1, 9, 3)])
    sentences = batch.source, batch.source_mask, batch.source_lengths
    limits = torch.tensor([4, 9, 6, 7])  # so that sentences are done one after another
    options: dict[str, Any] = {"beam_size": 3, "n_best": 3, "max_lengths": limits, "coverage_penalty": 0.2}
    expected, found = beam_search(model, *sentences, **options), beam_search(exported, *sentences, **options)
    for ours, theirs in zip(expected, found, strict=True):
        assert [each.tokens for each in ours] == [each.tokens for each in theirs]
        for first, second in zip(ours, theirs, strict=True):
            assert first.score == pytest.approx(second.score, abs=1e-5)
            assert first.weights == pytest.approx(second.weights, abs=1e-6)


def test_the_difference_of_each_output_is_found(model: Seq2Seq, paths: tuple[Path, Path]) -> None:
    """With a logit 1 greater, log-probabilities change by 1 at most: that of a rare token by most of it."""
    other = copy.deepcopy(model)
    found = largest_differences(other, *paths, batches=3)
    states = ["layer_0", "layer_1", "feedback", "past"]
    assert list(found) == [*MEMORY, *states, "log_probs", "weights", *(f"next_{name}" for name in states)]
    assert 0 < max(found.values()) < 1e-5
    other.output.bias.data[5] += 1.0
    found = largest_differences(other, *paths, batches=3)
    assert 0.8 < found.pop("log_probs") < 1.0
    assert max(found.values()) < 1e-5
    other.output.bias.data[5] = torch.nan
    assert math.isnan(largest_differences(other, *paths, batches=3)["log_probs"])


def test_a_difference_does_not_grow(model: Seq2Seq, paths: tuple[Path, Path]) -> None:
    """A state that is 0.001 off at each step is told so, not by how much it would be off in the end."""
    other = copy.deepcopy(model)
    other.decoder.attentional.bias = torch.nn.Parameter(torch.full((8,), 1e-3))
    assert 1e-4 < largest_differences(other, *paths, batches=3)["next_feedback"] <= 1e-3 + 1e-6


def test_later_steps_are_compared(model: Seq2Seq, paths: tuple[Path, Path]) -> None:
    """What a model makes of past attention shows from the second step on."""
    other = copy.deepcopy(model)
    other.decoder.attention.covered.weight.data += 1.0
    assert largest_differences(other, *paths, batches=2)["weights"] > 1e-3


def test_rounding_of_great_numbers_is_none(tmp_path: Path) -> None:
    """Of words that produce nothing, the fertility is almost 0, and its reciprocal, a key, great."""
    model = small_model(attention=AttentionConfig(coverage="fertility")).float().eval()
    model.decoder.attention.fertility.weight.data *= 20
    paths = tmp_path / "encoder.onnx", tmp_path / "step.onnx"
    write_graphs(model, *paths)
    found = largest_differences(model, *paths, batches=3)
    assert found["log_probs"] < 1e-5
    assert max(found.values()) < 1e-4
    model.decoder.attention.fertility.weight.data *= 1.01
    assert largest_differences(model, *paths, batches=3)["keys"] > 1e-3
