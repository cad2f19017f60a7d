"""Evaluate a translator on a split: translate it, score it, and write everything down."""

import hashlib
import json
import math
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import datasets
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from nmt.config import SearchConfig
from nmt.errors import UserError
from nmt.evaluation.alignment import (
    Links,
    alignment_error_rate,
    argmax_links,
    attention_entropy,
    check_links,
    format_pharaoh,
    parse_pharaoh,
)
from nmt.evaluation.heatmap import draw_heatmap, render_svg, save_png
from nmt.evaluation.metrics import (
    bleu_by_length,
    check_lines,
    corpus_scores,
    paired_bootstrap,
    repetition_rate,
    sentence_chrf,
)
from nmt.evaluation.report import Drawing, Sentence, number, render_report, summary
from nmt.translator import Alignment, Translation

METRICS = "metrics.json"
HYPOTHESES = "hypotheses.txt"
LONGEST_HEATMAP = 60  # words of either side


@runtime_checkable
class Translating(Protocol):
    """What is asked of a translator; `nmt.translator.Translator` has it."""

    search: SearchConfig
    device: torch.device
    checkpoint: Path | None
    step: int | None

    def translate(self, sentences: Sequence[str]) -> list[Translation]: ...

    def align(self, sources: Sequence[str], targets: Sequence[str]) -> list[Alignment]: ...


class Baseline(NamedTuple):
    """Translations of the same sentences by another system, and how they were made."""

    run: str
    hypotheses: list[str]
    settings: dict[str, Any]


def evaluate_split(
    translator: Translating,
    corpus: datasets.Dataset,
    folder: Path,
    *,
    split: str,
    bleu_tokenize: str = "13a",
    lowercase: bool = False,
    num_heatmaps: int = 12,
    provenance: Mapping[str, Any] | None = None,
    baseline: Baseline | None = None,
) -> dict[str, Any]:
    """Translate and score a corpus and write metrics.json, hypotheses.txt, alignments.pharaoh, report.html, heatmaps/.

    The alignment error rate is that of the attention to the references (forced decoding), since gold links speak of
    the references' words; entropy and heatmaps are of the translations. `provenance` adds to the metrics or replaces
    what is known of the translator. An older evaluation in `folder` is replaced file by file once all is ready.

    Returns:
        The contents of metrics.json.

    Raises:
        UserError: the corpus is empty, its gold alignments are wrong, or `folder` cannot be written.
    """
    sources, references = list(corpus["source"]), list(corpus["target"])
    check_lines(sources, references)
    gold = read_gold(corpus, split)
    prepare(folder)
    started = time.perf_counter()
    translations = translator.translate(sources)
    seconds = time.perf_counter() - started
    hypotheses = texts(translations)
    scoring: dict[str, Any] = {"tokenize": bleu_tokenize, "lowercase": lowercase}
    metrics: dict[str, Any] = finite(
        {
            **score(sources, hypotheses, references, **scoring),
            **alignment_metrics(translator, sources, references, gold),
            "attention_entropy": attention_entropy([each.weights for each in translations]),
            "sentences": len(sources),
            "seconds": seconds,
            "sentences_per_second": len(sources) / seconds,
            "baseline": compare(hypotheses, baseline, references, **scoring) if baseline else None,
            "split": split,
            **settings(translator),
            "bleu_tokenize": bleu_tokenize,
            "lowercase": lowercase,
            "corpus": fingerprint(sources, references),
            **(provenance or {}),
        }
    )
    chrf = sentence_chrf(hypotheses, references, lowercase=lowercase)
    rows = [Sentence(n, *row) for n, row in enumerate(zip(sources, hypotheses, references, chrf, strict=True), start=1)]
    write(folder, metrics, rows, translations, gold, num_heatmaps)
    return metrics


def score(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], *, tokenize: str, lowercase: bool
) -> dict[str, Any]:
    """Return the metrics that look at text only."""
    scores = corpus_scores(hypotheses, references, tokenize=tokenize, lowercase=lowercase)
    return {
        "bleu": scores.bleu,
        "chrf": scores.chrf,
        "ter": scores.ter,
        "signature": scores.signatures,
        "bleu_ci95": list(scores.bleu_ci95),
        "bleu_by_length": bleu_by_length(sources, hypotheses, references, tokenize=tokenize, lowercase=lowercase),
        "repetition_rate": repetition_rate(hypotheses),
        "reference_repetition_rate": repetition_rate(references),
    }


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
        "beam_size": translator.search.beam_size,
        "length_penalty": translator.search.length_penalty,
        "device": translator.device.type,
    }


def lasting(path: Path) -> str:
    """Name a path without links such as outputs/latest, which point elsewhere tomorrow."""
    path, here = path.resolve(), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def read_gold(corpus: datasets.Dataset, split: str) -> list[Links] | None:
    """Return the gold links of every sentence, or None where the corpus has none.

    Raises:
        UserError: a link cannot be read or points outside its sentences.
    """
    if "alignment" not in corpus.column_names:
        return None
    gold = []
    for n, row in enumerate(corpus, start=1):
        where = f"gold alignment of {split} line {n}"
        links = parse_pharaoh(row["alignment"] or "", where)
        check_links(links, len(row["source"].split()), len(row["target"].split()), where)
        gold.append(links)
    return gold


def alignment_metrics(
    translator: Translating, sources: Sequence[str], references: Sequence[str], gold: Sequence[Links] | None
) -> dict[str, Any]:
    """Score the attention to the references against gold links.

    Gold counts words between spaces; a pair whose words the subword model's normalization counts differently is
    left out, and `aer_sentences` says how many were scored.
    """
    if gold is None:
        return {"aer": None, "alignment_precision": None, "alignment_recall": None, "aer_sentences": 0}
    aligned = translator.align(sources, references)
    kept = [
        (argmax_links(each.weights), links)
        for source, reference, each, links in zip(sources, references, aligned, gold, strict=True)
        if (len(each.target_words), len(each.source_words)) == (len(reference.split()), len(source.split()))
    ]
    scores = alignment_error_rate([links for links, _ in kept], [links for _, links in kept])
    return {
        "aer": scores.aer if kept else None,
        "alignment_precision": scores.precision if kept else None,
        "alignment_recall": scores.recall if kept else None,
        "aer_sentences": len(kept),
    }


def texts(translations: Sequence[Translation]) -> list[str]:
    """Return the text of each translation, on one line."""
    return [each.text.replace("\r", " ").replace("\n", " ") for each in translations]


def fingerprint(sources: Sequence[str], references: Sequence[str]) -> str:
    """Return a digest of a corpus, to tell whether two evaluations saw the same one."""
    digest = hashlib.sha256()
    for side in (sources, references):
        digest.update("\n".join(side).encode() + b"\0")
    return digest.hexdigest()[:16]


def stored_baseline(run: Path, split: str, corpus: datasets.Dataset) -> Baseline | None:
    """Return the translations that an earlier evaluation of `run` wrote, if they are of this very corpus."""
    folder, columns = run / "evaluation" / split, (list(corpus["source"]), list(corpus["target"]))
    try:
        metrics = json.loads((folder / METRICS).read_text(encoding="utf-8"))
        hypotheses = (folder / HYPOTHESES).read_text(encoding="utf-8").split("\n")[:-1]
    except (OSError, ValueError):
        return None
    if len(hypotheses) != len(corpus) or metrics.get("corpus") != fingerprint(*columns):
        return None
    names = ("checkpoint", "step", "beam_size", "length_penalty")
    return Baseline(str(run), hypotheses, {name: metrics.get(name) for name in names})


def translated_baseline(run: Path, translator: Translating, corpus: datasets.Dataset) -> Baseline:
    """Translate the corpus with the baseline."""
    return Baseline(str(run), texts(translator.translate(list(corpus["source"]))), settings(translator))


def finite(value: Any) -> Any:
    """Replace what JSON cannot say (NaN, infinity) by None, however deep."""
    if isinstance(value, Mapping):
        return {key: finite(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def pick(translations: Sequence[Translation], count: int) -> list[int]:
    """Choose sentences to draw: evenly spread over the lengths that a heatmap can show, the same every time."""
    drawable = [i for i, each in enumerate(translations) if 0 < max(each.weights.shape) <= LONGEST_HEATMAP]
    drawable = [i for i in drawable if translations[i].weights.size]
    drawable.sort(key=lambda i: len(translations[i].source_words))
    spread = np.linspace(0, len(drawable) - 1, min(count, len(drawable))).round().astype(int)
    return [drawable[i] for i in spread]


def prepare(folder: Path) -> None:
    """Create the folder before the work begins.

    Raises:
        UserError: it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write the evaluation to {folder}: {error.strerror}") from error


def write(
    folder: Path,
    metrics: Mapping[str, Any],
    rows: Sequence[Sentence],
    translations: Sequence[Translation],
    gold: Sequence[Links] | None,
    num_heatmaps: int,
) -> None:
    """Write every file beside the folder first, then move each into place, metrics.json last."""
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        drawings = draw(staging / "heatmaps", rows, translations, gold, pick(translations, num_heatmaps))
        page = render_report(metrics, rows, drawings, title=f"Evaluation on {metrics['split']}")
        links = [format_pharaoh(argmax_links(each.weights)) for each in translations]
        (staging / "report.html").write_text(page, encoding="utf-8")
        (staging / HYPOTHESES).write_text(lines(row.hypothesis for row in rows), encoding="utf-8")
        (staging / "alignments.pharaoh").write_text(lines(links), encoding="utf-8")
        (staging / METRICS).write_text(json.dumps(metrics, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        shutil.rmtree(folder / "heatmaps", ignore_errors=True)
        for name in ("heatmaps", "alignments.pharaoh", HYPOTHESES, "report.html", METRICS):
            (staging / name).replace(folder / name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def draw(
    folder: Path,
    rows: Sequence[Sentence],
    translations: Sequence[Translation],
    gold: Sequence[Links] | None,
    chosen: Sequence[int],
) -> list[Drawing]:
    """Write a PNG a chosen sentence, named by its line, and return the drawings for the report.

    Gold is shown where the translation has the reference's words, which it speaks of.
    """
    folder.mkdir()
    drawings = []
    for index in chosen:
        row, each = rows[index], translations[index]
        outlined = gold[index] if gold and each.target_words == row.reference.split() else None
        title = f"line {row.number}"
        figure = draw_heatmap(each.weights, each.source_words, each.target_words, title=title, gold=outlined)
        save_png(figure, folder / f"{row.number:05d}.png")
        drawings.append(Drawing(row, render_svg(each.weights, each.source_words, each.target_words, gold=outlined)))
    return drawings


def lines(texts: Iterable[str]) -> str:
    """Join lines, each ended by a newline."""
    return "".join(f"{text}\n" for text in texts)


def print_table(metrics: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the scores with their settings."""
    console = console or Console()
    low, high = metrics["bleu_ci95"]
    table = Table(title=f"{metrics['split']}: {metrics['sentences']:,} sentences", title_justify="left")
    table.add_column("metric")
    table.add_column("score", justify="right")
    table.add_column("")
    table.add_row("BLEU", number(metrics["bleu"], 2), f"95% interval {number(low)} to {number(high)}")
    table.add_row("chrF", number(metrics["chrf"], 2))
    table.add_row("TER", number(metrics["ter"], 2), "lower is better")
    table.add_row(
        "AER", number(metrics["aer"], 3), "no gold alignments" if metrics["aer"] is None else "lower is better"
    )
    table.add_row("attention entropy", number(metrics["attention_entropy"], 3), "nats a word")
    table.add_row("repetition rate", number(metrics["repetition_rate"], 4), "share of words")
    table.add_row("speed", number(metrics["sentences_per_second"]), f"sentences/s, {number(metrics['seconds'])} s")
    for name, label in (("bleu", "BLEU"), ("chrf", "chrF")):
        if metrics["baseline"] is not None:
            test = metrics["baseline"][name]
            note = f"against {number(test['baseline'], 2)} of {metrics['baseline']['run']}, p = {test['p_value']:.4f}"
            table.add_row(f"{label} difference", f"{test['difference']:+.2f}", note)
    console.print(table)
    console.print(summary(metrics), highlight=False, soft_wrap=True)
    for name in ("bleu", "chrf", "ter"):
        console.print(f"{name}|{metrics['signature'][name]}", highlight=False, soft_wrap=True, style="dim")
