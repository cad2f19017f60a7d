"""What an earlier evaluation wrote is taken only where it is what would be said now."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch

from nmt.config import SearchConfig
from nmt.evaluation.baseline import DECISIVE, baseline_of, fingerprint, settings
from nmt.translator import Alignment, Translation

SOURCES, TARGETS = ["a b", "", "c"], ["A B", "", "C"]


class Echo:
    """Says every sentence again, and counts how many it was given."""

    def __init__(self, precision: str = "fp32", step: int = 5, **search: Any) -> None:
        self.search, self.precision, self.step = SearchConfig(**search), precision, step
        self.device = torch.device("cpu")
        self.checkpoint: Path | None = None
        self.ensemble: list[Path] = []
        self.translated = 0

    def translate(self, sentences: Sequence[str]) -> list[Translation]:
        self.translated += len(sentences)
        empty = np.zeros((0, 0))
        return [Translation([], [], empty, source=s, text=s, score=0.0, log_prob=0.0, pieces=[]) for s in sentences]

    def align(self, sources: Sequence[str], targets: Sequence[str]) -> list[Alignment]:
        raise AssertionError("a baseline is not aligned")

    def perplexity(self, sources: Sequence[str], targets: Sequence[str]) -> float:
        return 7.5

    def plain(self, lines: Sequence[str]) -> list[str]:
        return list(lines)


def corpus(targets: Sequence[str] = TARGETS) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"source": SOURCES, "target": list(targets)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An earlier evaluation by `Echo()`."""
    metrics = settings(Echo()) | {"corpus": fingerprint(SOURCES, TARGETS)}
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    (tmp_path / "hypotheses.txt").write_text("old one\n\nold two\n")
    return tmp_path


def test_translations_made_alike_are_read(folder: Path) -> None:
    translator = Echo()
    baseline = baseline_of(Path("runs/b"), folder, translator, corpus())
    assert (baseline.run, baseline.hypotheses) == ("runs/b", ["old one", "", "old two"])
    assert translator.translated == 0
    assert (baseline.settings["beam_size"], baseline.settings["step"]) == (5, 5)


@pytest.mark.parametrize(
    "changed",
    [
        {"step": 6},
        {"precision": "bf16"},
        {"beam_size": 1},
        {"length_penalty": 0.5},
        {"coverage_penalty": 0.2},
        {"max_length_ratio": 1.5},
        {"max_length_offset": 2},
    ],
)
def test_others_are_made_anew(folder: Path, changed: dict[str, Any]) -> None:
    translator = Echo(**changed)
    baseline = baseline_of(Path("runs/b"), folder, translator, corpus())
    assert baseline.hypotheses == SOURCES
    assert changed.items() <= baseline.settings.items()


def test_the_size_of_a_batch_decides_nothing(folder: Path) -> None:
    assert baseline_of(Path("b"), folder, Echo(batch_size=3), corpus()).hypotheses[0] == "old one"
    searched = {member.name for member in dataclasses.fields(SearchConfig)} - {"batch_size"}
    assert set(DECISIVE) == searched | {"step", "precision", "ensemble"}


def test_another_corpus_or_a_damaged_evaluation_is_not_taken(folder: Path) -> None:
    assert baseline_of(Path("b"), folder, Echo(), corpus(["A B", "", "Z"])).hypotheses == SOURCES
    assert baseline_of(Path("b"), folder / "none", Echo(), corpus()).hypotheses == SOURCES
    metrics = json.loads((folder / "metrics.json").read_text())
    # As written before precision was recorded.
    (folder / "metrics.json").write_text(json.dumps({k: v for k, v in metrics.items() if k != "precision"}))
    assert baseline_of(Path("b"), folder, Echo(), corpus()).hypotheses == SOURCES
    (folder / "metrics.json").write_text("{")
    assert baseline_of(Path("b"), folder, Echo(), corpus()).hypotheses == SOURCES
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "hypotheses.txt").write_text("old one\n")
    assert baseline_of(Path("b"), folder, Echo(), corpus()).hypotheses == SOURCES
