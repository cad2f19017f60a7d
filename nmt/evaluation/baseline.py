"""Another system's translations of the same sentences, made in the same way, to compare with."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import datasets

from nmt.evaluation.agreement import Translating
from nmt.evaluation.metrics import paired_bootstrap
from nmt.translator import Translation

METRICS = "metrics.json"
HYPOTHESES = "hypotheses.txt"

# Of what `settings` gives, all that decides how a sentence is translated.
DECISIVE = (
    "step",
    "ensemble",
    "precision",
    "beam_size",
    "length_penalty",
    "coverage_penalty",
    "max_length_ratio",
    "max_length_offset",
)


class Baseline(NamedTuple):
    """Translations of the same sentences by another system, and how they were made."""

    run: str
    hypotheses: list[str]
    settings: dict[str, Any]


def baseline_of(run: Path, folder: Path, translator: Translating, corpus: datasets.Dataset) -> Baseline:
    """Return the translations of a corpus by a translator: those in `folder` where they are what it would say now."""
    stored = stored_hypotheses(folder, settings(translator), corpus)
    found = texts(translator.translate(list(corpus["source"]))) if stored is None else stored
    return Baseline(str(run), found, settings(translator))


def stored_hypotheses(folder: Path, wanted: dict[str, Any], corpus: datasets.Dataset) -> list[str] | None:
    """Return what an earlier evaluation wrote, if it is of this very corpus, checkpoint, search and precision."""
    columns = (list(corpus["source"]), list(corpus["target"]))
    try:
        metrics = json.loads((folder / METRICS).read_text(encoding="utf-8"))
        hypotheses = (folder / HYPOTHESES).read_text(encoding="utf-8").split("\n")[:-1]
    except (OSError, ValueError):
        return None
    expected = {name: wanted[name] for name in DECISIVE} | {"corpus": fingerprint(*columns)}
    same = all(name in metrics and metrics[name] == value for name, value in expected.items())
    return hypotheses if same and len(hypotheses) == len(corpus) else None


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
