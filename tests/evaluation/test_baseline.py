"""What an earlier evaluation wrote is taken only where it is what would be said now."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch

from nmt.alignment.weights import Alignment
from nmt.config.schema import SearchConfig
from nmt.evaluation.baseline import baseline_of
from nmt.translator import Translation

SOURCES, TARGETS = ["a b", "", "c"], ["A B", "", "C"]


class Echo:
    """Says every sentence again, and counts how many it was given."""

    def __init__(self, precision: str = "fp32", step: int = 5, **search: Any) -> None:
        self.search, self.precision = SearchConfig(**search), precision
        self.step: int | None = step
        self.device = torch.device("cpu")
        self.checkpoint: Path | None = None
        self.ensemble: list[Path] = []
        self.replaces_unknown = False
        self.translated = 0

    def translate(self, sentences: Sequence[str]) -> list[Translation]:
        self.translated += len(sentences)
        empty = np.zeros((0, 0))
        return [
            Translation([], [], empty, source=s, text=s, score=0.0, log_prob=0.0, pieces=[], words=([], []))
            for s in sentences
        ]

    def greedy(self, sentences: Sequence[str]) -> list[Translation]:
        return self.translate(sentences)

    def align(self, sources: Sequence[str], targets: Sequence[str], words: str = "spaces") -> list[Alignment]:
        raise AssertionError("a baseline is not aligned")

    def cross_entropy(self, sources: Sequence[str], targets: Sequence[str]) -> float:
        return 2.0

    def detokenize(self, lines: Sequence[str]) -> list[str]:
        return list(lines)


def corpus(targets: Sequence[str] = TARGETS) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"source": SOURCES, "target": list(targets)})


def test_a_baseline_is_its_translations_and_how_they_were_made() -> None:
    baseline = baseline_of(Path("runs/b"), Echo(precision="bf16", beam_size=2), corpus())
    assert (baseline.run, baseline.hypotheses) == ("runs/b", SOURCES)
    wanted = {"beam_size": 2, "precision": "bf16", "step": 5, "ensemble": []}
    assert wanted.items() <= baseline.settings.items()
    assert {member.name for member in dataclasses.fields(SearchConfig)} <= baseline.settings.keys()
