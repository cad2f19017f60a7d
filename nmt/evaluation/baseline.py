"""Comparison with the translations of another run, and the settings that every score depends on."""

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import datasets

from nmt.evaluation.metrics import paired_bootstrap
from nmt.evaluation.outcome import Outcome
from nmt.evaluation.registry import METRICS
from nmt.evaluation.views import Translating
from nmt.formats import from_here


class Baseline(NamedTuple):
    """Translations of the same sentences by another system, and how they were made."""

    run: str
    hypotheses: list[str]
    settings: dict[str, Any]


def baseline_of(run: Path, translator: Translating, corpus: datasets.Dataset) -> Baseline:
    """Return a translator's translations of a corpus."""
    hypotheses = [translation.line for translation in translator.translate(list(corpus["source"]))]
    return Baseline(str(run), hypotheses, translator_settings(translator))


def compare(outcome: Outcome, baseline: Baseline) -> dict[str, Any]:
    """Return the comparison with a baseline, by every metric that has one, and the baseline's settings."""
    texts = outcome.hypotheses, baseline.hypotheses, outcome.references
    tests = {
        name: paired_bootstrap(metric.sacrebleu(outcome.tokenize, outcome.lowercase), *texts)
        for name, metric in METRICS.items()
        if metric.sacrebleu is not None
    }
    return {"run": baseline.run, **baseline.settings, **tests}


def translator_settings(translator: Translating) -> dict[str, Any]:
    """Return the settings of translations: the checkpoint and the search."""
    return {
        "checkpoint": None if translator.checkpoint is None else stable_path(translator.checkpoint),
        "step": translator.step,
        "ensemble": [stable_path(path) for path in translator.ensemble],
        **dataclasses.asdict(translator.search),
        "replace_unknown": translator.replaces_unknown,
        "precision": translator.precision,
        "device": translator.device.type,
    }


def stable_path(path: Path) -> str:
    """Resolve links such as outputs/latest, whose target changes; relative to the working directory where possible."""
    return str(from_here(path.resolve()))


def corpus_digest(sources: Sequence[str], references: Sequence[str]) -> str:
    """Return a digest of a corpus, by which evaluations on the same corpus are recognized."""
    digest = hashlib.sha256()
    for side in (sources, references):
        digest.update("\n".join(side).encode() + b"\0")
    return digest.hexdigest()[:16]
