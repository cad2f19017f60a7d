"""The figures of an evaluation, as a report shows them, and what a report holds."""

import io
import json
import re
from pathlib import Path
from typing import Any

from rich.console import Console

from nmt.evaluation.report import print_table


def metrics(**changes: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "bleu": 37.123,
        "chrf": 64.9,
        "ter": 35.0,
        "perplexity": 4.25,
        "ensemble": [],
        "signature": {"bleu": "tok:13a|version:2"},
        "bleu_ci95": [36.0, 38.25],
        "aer": None,
        "aer_sentences": 0,
        "gold_sentences": 0,
        "attention_entropy": 0.71,
        "coverage_deficit": 0.25,
        "repetition_rate": 0.0123,
        "bleu_by_length": [{"min_words": 1, "max_words": 10, "sentences": 7, "bleu": 41.5}],
        "sentences": 2,
        "sentences_per_second": 20.0,
        "baseline": None,
        "split": "test",
        "beam_size": 5,
        "length_penalty": 1.0,
        "coverage_penalty": 0.0,
        "max_length_ratio": 2.0,
        "max_length_offset": 20,
        "replace_unknown": False,
        "precision": "fp32",
        "checkpoint": "runs/<a>/best",
        "step": 1200,
        "lowercase": False,
    }
    return {**known, **changes}


def alignments_in(page: str) -> dict[str, Any]:
    """The data of a report's views, by the number of the sentence."""
    return dict(json.loads(re.findall(r"^const alignments = (.*);$", page, flags=re.MULTILINE)[0]))


def gold_in(folder: Path) -> list[Any]:
    """The gold links of each view of a report."""
    return [each.get("gold") for each in alignments_in((folder / "report.html").read_text()).values()]


def printed(metrics: dict[str, Any]) -> str:
    """The table of an evaluation, as the console shows it."""
    console = Console(file=io.StringIO(), width=120)
    print_table(metrics, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
