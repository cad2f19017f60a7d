"""The search of the example finds what nmt.search.beam finds, on models near to chance, where nothing is clear."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnxruntime import InferenceSession

from nmt.data.batch import pad
from nmt.exporting.graphs import write_graphs
from nmt.exporting.translate import Translator
from nmt.models.seq2seq import Seq2Seq
from nmt.search.beam import beam_search
from tests.models.small import VOCAB, small_model

SPECIAL = {"pad": 0, "unk": 1, "bos": 2, "eos": 3}


@pytest.fixture(scope="module")
def model() -> Seq2Seq:
    return small_model(decoder="luong").float().eval()


@pytest.fixture
def example(model: Seq2Seq, tmp_path: Path) -> Translator:
    write_graphs(model, tmp_path / "encoder.onnx", tmp_path / "step.onnx")
    found = Translator.__new__(Translator)  # there are no subwords, and search needs none
    found.encoder, found.step = (InferenceSession(tmp_path / f"{name}.onnx") for name in ("encoder", "step"))
    return found


@pytest.mark.parametrize("beam", [1, 2, 3])
@pytest.mark.parametrize(("alpha", "patience"), [(1.0, 1.0), (0.0, 2.0), (1.5, math.inf)])
def test_the_search_is_that_of_the_package(
    model: Seq2Seq, example: Translator, beam: int, alpha: float, patience: float
) -> None:
    limits = {"max_length_ratio": 1.5, "max_length_offset": 6}
    rules = {"length_penalty": alpha, "patience": None if math.isinf(patience) else patience, **limits}
    example.model = {"special_ids": SPECIAL, "search": rules}
    generator = np.random.default_rng(beam)
    sources = [generator.integers(4, VOCAB, size, dtype=np.int32) for size in generator.integers(1, 9, 40)]
    sentences = pad(sources)
    options: dict[str, Any] = {"beam_size": beam, "length_penalty": alpha, "patience": patience}
    expected = beam_search(model, *sentences, max_lengths=(sentences[2] * 1.5 + 6).long(), **options)
    for source, (ours,) in zip(sources, expected, strict=True):
        score, tokens, weights = example.search([*source.tolist(), SPECIAL["eos"]], beam)
        assert tokens == ours.tokens + [SPECIAL["eos"]] * (not ours.is_cut)
        assert score == pytest.approx(ours.score, abs=1e-5)
        assert np.array(weights) == pytest.approx(ours.weights, abs=1e-5)
