"""Another system's translations of the same sentences, made in the same way, to compare with."""

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import datasets

from nmt.evaluation.metrics import paired_bootstrap
from nmt.evaluation.views import Translating
from nmt.translator import Translation


class Baseline(NamedTuple):
    """Translations of the same sentences by another system, and how they were made."""

    run: str
    hypotheses: list[str]
    settings: dict[str, Any]


def baseline_of(run: Path, translator: Translating, corpus: datasets.Dataset) -> Baseline:
    """Return a translator's translations of a corpus."""
    return Baseline(str(run), texts(translator.translate(list(corpus["source"]))), settings(translator))


def compare(
    hypotheses: Sequence[str], baseline: Baseline, references: Sequence[str], *, tokenize: str, lowercase: bool
) -> dict[str, Any]:
    """Return the comparison with a baseline, and what is known of the baseline."""
    tests = paired_bootstrap(hypotheses, baseline.hypotheses, references, tokenize=tokenize, lowercase=lowercase)
    return {"run": baseline.run, **baseline.settings, **tests}


def settings(translator: Translating) -> dict[str, Any]:
    """Return what a score must travel with: the checkpoint and how it was searched."""
    return {
        "checkpoint": None if translator.checkpoint is None else lasting(translator.checkpoint),
        "step": translator.step,
        "ensemble": [lasting(each) for each in translator.ensemble],
        **dataclasses.asdict(translator.search),
        "precision": translator.precision,
        "device": translator.device.type,
    }


def lasting(path: Path) -> str:
    """Name a path without links such as outputs/latest, which point elsewhere tomorrow."""
    path, here = path.resolve(), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def texts(translations: Sequence[Translation]) -> list[str]:
    """Return the text of each translation, on one line."""
    return [each.text.replace("\r", " ").replace("\n", " ") for each in translations]


def fingerprint(sources: Sequence[str], references: Sequence[str]) -> str:
    """Return a digest of a corpus, to tell whether two evaluations saw the same one."""
    digest = hashlib.sha256()
    for side in (sources, references):
        digest.update("\n".join(side).encode() + b"\0")
    return digest.hexdigest()[:16]
