"""Exported graphs are searched as models are, and a difference is found."""

from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.schema import AttentionConfig
from nmt.exporting.exported import Exported, largest_difference
from nmt.exporting.graphs import write_graphs
from nmt.models.seq2seq import Seq2Seq
from nmt.search.beam import beam_search
from nmt.search.hypothesis import StepModel
from tests.models.small import random_batch, small_model


@pytest.fixture(scope="module")
def model() -> Seq2Seq:
    attention = AttentionConfig(coverage="accumulated", window="local_m", radius=2)
    return small_model(decoder="luong", num_layers=2, attention=attention).float().eval()


@pytest.fixture
def exported(model: Seq2Seq, tmp_path: Path) -> Exported:
    paths = tmp_path / "encoder.onnx", tmp_path / "step.onnx"
    write_graphs(model, *paths)
    return Exported(*paths)


def test_a_search_finds_the_same(model: Seq2Seq, exported: Exported) -> None:
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


def test_the_difference_is_that_of_the_models(model: Seq2Seq, exported: Exported) -> None:
    """With a logit 1 greater, log-probabilities change by 1 at most: that of a rare token by most of it."""
    assert largest_difference(model, exported, batches=3) < 1e-5
    before = float(model.output.bias.data[5])
    model.output.bias.data[5] += 1.0
    try:
        assert 0.8 < largest_difference(model, exported, batches=3) < 1.0
        model.output.bias.data[5] = torch.nan
        assert not largest_difference(model, exported, batches=1) <= 1e9
    finally:
        model.output.bias.data[5] = before
