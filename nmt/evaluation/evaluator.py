"""Evaluate a translator on a split: translate it, score it, and write everything down."""

import json
import math
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
from rich.console import Console
from rich.table import Table

from nmt.alignment.aer import read_gold
from nmt.alignment.links import LinkRule, intersection
from nmt.alignment.pharaoh import Link, Links, format_pharaoh
from nmt.alignment.weights import Alignment, attention_entropy, coverage_deficit
from nmt.errors import UserError
from nmt.evaluation.baseline import Baseline, compare, fingerprint, settings, texts
from nmt.evaluation.correlation import Correlation, rank_correlation
from nmt.evaluation.heatmap import draw_heatmaps, render_svg, save_png
from nmt.evaluation.metrics import (
    bleu_by_length,
    check_lines,
    check_tokenizer,
    corpus_scores,
    repetition_rate,
    sentence_chrf,
)
from nmt.evaluation.report import Drawing, Sentence, gold_note, number, render_report, search_summary, summary
from nmt.evaluation.views import Translating, Views, alignment_metrics, settings_of
from nmt.translator import Translation

METRICS = "metrics.json"
HYPOTHESES = "hypotheses.txt"
ALIGNMENTS = "alignments.pharaoh"
INTERSECTION = "alignments.intersection.pharaoh"
LONGEST_HEATMAP = 60  # words of either side


class Evidence(NamedTuple):
    """What the translations rest on: attention, saliency where it was asked for, and the links of words.

    `agreed` are the links that a translator of the other direction confirms; `gold` speaks of the references.
    """

    attention: Sequence[Translation]
    saliency: Sequence[Alignment] | None
    links: Sequence[set[Link]]
    agreed: Sequence[set[Link]] | None
    gold: Sequence[Links] | None


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
    views: Views | None = None,
) -> dict[str, Any]:
    """Translate and score a corpus and write metrics.json, hypotheses.txt, alignments.pharaoh, report.html, heatmaps/.

    Alignment error rates are of the references (forced decoding), whose words gold speaks of; entropy, coverage,
    correlation and heatmaps are of the translations. `provenance` adds to the metrics or replaces what is known of the
    translator. An older evaluation in `folder` is replaced file by file once all is ready. Of the `views`, a reverse
    translator adds alignments.intersection.pharaoh, and an explainer the saliency beside every heatmap.

    Returns:
        The contents of metrics.json.

    Raises:
        UserError: the corpus is empty, its gold alignments are wrong, BLEU's tokenizer is not available, or `folder`
            cannot be written.
    """
    sources, targets = list(corpus["source"]), list(corpus["target"])
    check_lines(sources, targets)
    check_tokenizer(bleu_tokenize)
    references = translator.plain(targets)
    gold, views = read_gold(corpus, split), views or Views()
    prepare(folder)
    started = time.perf_counter()
    translations = translator.translate(sources)
    seconds = time.perf_counter() - started
    # Gold counts pieces where text is segmented already, and so cannot be drawn on the words made of them.
    drawn = gold if list(map(str.split, references)) == list(map(str.split, targets)) else None
    hypotheses, evidence = texts(translations), gather(translations, drawn, views)
    scoring: dict[str, Any] = {"tokenize": bleu_tokenize, "lowercase": lowercase}
    metrics: dict[str, Any] = finite(
        {
            **score(sources, hypotheses, references, **scoring),
            **alignment_metrics(translator, sources, targets, gold, views),
            **attention_metrics(evidence),
            "perplexity": translator.perplexity(sources, targets),
            "sentences": len(sources),
            "seconds": seconds,
            "sentences_per_second": len(sources) / seconds,
            "baseline": compare(hypotheses, baseline, references, **scoring) if baseline else None,
            "corpus": fingerprint(sources, targets),
            **circumstances(translator, views, split=split, **scoring),
            **(provenance or {}),
        }
    )
    write(folder, metrics, table_of(sources, hypotheses, references, lowercase), evidence, num_heatmaps)
    return metrics


def table_of(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], lowercase: bool
) -> list[Sentence]:
    """Return the rows of the table of sentences."""
    chrf = sentence_chrf(hypotheses, references, lowercase=lowercase)
    rows = zip(sources, hypotheses, references, chrf, strict=True)
    return [Sentence(number, *row) for number, row in enumerate(rows, start=1)]


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


def gather(translations: Sequence[Translation], gold: Sequence[Links] | None, views: Views) -> Evidence:
    """Look at translations in every way that was asked for."""
    links, agreed = [views.rule.links(each.weights) for each in translations], None
    if views.reverse is not None:
        agreed = confirmed(links, translations, views.reverse, views.rule)
    saliency = views.explainer.translations(translations) if views.explainer else None
    return Evidence(translations, saliency, links, agreed, gold)


def confirmed(
    links: Sequence[set[Link]], translations: Sequence[Translation], reverse: Translating, rule: LinkRule
) -> list[set[Link]]:
    """Return the links of translations that `reverse` finds as well; none where it counts other words."""
    aligned = reverse.align(texts(translations), [each.source for each in translations])
    return [
        intersection(found, rule.links(theirs.weights)) if theirs.weights.T.shape == ours.weights.shape else set()
        for found, ours, theirs in zip(links, translations, aligned, strict=True)
    ]


def attention_metrics(evidence: Evidence) -> dict[str, float | None]:
    """Return what is said of the attention itself, and its correlation with saliency over source words."""
    weights = [each.weights for each in evidence.attention]
    saliency = evidence.saliency
    correlation = Correlation(None, None)
    if saliency is not None:
        correlation = rank_correlation(weights, [each.weights for each in saliency])
    return {
        "attention_entropy": attention_entropy(weights),
        "coverage_deficit": coverage_deficit(weights),
        "saliency_attention_spearman": correlation.spearman,
        "saliency_attention_kendall": correlation.kendall,
    }


def circumstances(
    translator: Translating, views: Views, *, split: str, tokenize: str, lowercase: bool
) -> dict[str, Any]:
    """Return what all scores of an evaluation must travel with."""
    scoring = {"bleu_tokenize": tokenize, "lowercase": lowercase}
    return {"split": split, **settings(translator), **scoring, **settings_of(views)}


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
    evidence: Evidence,
    num_heatmaps: int,
) -> None:
    """Write every file beside the folder first, then move each into place, metrics.json last."""
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        drawings = draw(staging / "heatmaps", rows, evidence, pick(evidence.attention, num_heatmaps))
        page = render_report(metrics, rows, drawings, title=f"Evaluation on {metrics['split']}")
        (staging / "report.html").write_text(page, encoding="utf-8")
        (staging / HYPOTHESES).write_text(lines(row.hypothesis for row in rows), encoding="utf-8")
        (staging / ALIGNMENTS).write_text(lines(map(format_pharaoh, evidence.links)), encoding="utf-8")
        if evidence.agreed is not None:
            (staging / INTERSECTION).write_text(lines(map(format_pharaoh, evidence.agreed)), encoding="utf-8")
        (staging / METRICS).write_text(json.dumps(metrics, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        shutil.rmtree(folder / "heatmaps", ignore_errors=True)
        (folder / INTERSECTION).unlink(missing_ok=True)
        for name in ("heatmaps", ALIGNMENTS, INTERSECTION, HYPOTHESES, "report.html", METRICS):
            if (staging / name).exists():
                (staging / name).replace(folder / name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def draw(folder: Path, rows: Sequence[Sentence], evidence: Evidence, chosen: Sequence[int]) -> list[Drawing]:
    """Write a PNG a chosen sentence, named by its line, and return the drawings for the report.

    Gold is shown where the translation has the reference's words, which it speaks of.
    """
    folder.mkdir()
    drawings = []
    for index in chosen:
        row, each = rows[index], evidence.attention[index]
        words = each.source_words, each.target_words
        panels = {"attention": each.weights}
        if evidence.saliency is not None:
            panels["saliency"] = evidence.saliency[index].weights
        as_gold = words == (row.source.split(), row.reference.split())
        outlined = evidence.gold[index] if evidence.gold and as_gold else None
        figure = draw_heatmaps(panels, *words, title=f"line {row.number}", gold=outlined)
        save_png(figure, folder / f"{row.number:05d}.png")
        pictures = {name: render_svg(weights, *words, gold=outlined) for name, weights in panels.items()}
        drawings.append(Drawing(row, pictures))
    return drawings


def lines(texts: Iterable[str]) -> str:
    """Join lines, each ended by a newline."""
    return "".join(f"{text}\n" for text in texts)


def alignment_rows(metrics: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the rows of the table about attention, and about saliency and the reverse run where asked for."""
    further = [
        ("AER, intersection", "intersection_aer", f"with {metrics.get('reverse')}"),
        ("AER, reverse", "reverse_aer", "of the reverse run alone"),
        ("AER, saliency", "saliency_aer", "lower is better"),
        ("saliency-attention", "saliency_attention_spearman", "mean rank correlation, Spearman"),
        ("", "saliency_attention_kendall", "Kendall"),
    ]
    return [
        *((name, number(metrics[key], 3), note) for name, key, note in further if metrics.get(key) is not None),
        ("attention entropy", number(metrics["attention_entropy"], 3), "nats a word"),
        ("coverage deficit", number(metrics["coverage_deficit"], 3), "attention that a source word lacks"),
    ]


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
    table.add_row("perplexity", number(metrics["perplexity"], 2), "of the references, a subword")
    table.add_row("AER", number(metrics["aer"], 3), gold_note(metrics))
    for row in alignment_rows(metrics):
        table.add_row(*row)
    table.add_row("repetition rate", number(metrics["repetition_rate"], 4), "share of words")
    table.add_row("speed", number(metrics["sentences_per_second"]), f"sentences/s, {number(metrics['seconds'])} s")
    for name, label in (("bleu", "BLEU"), ("chrf", "chrF")):
        if metrics["baseline"] is not None:
            test = metrics["baseline"][name]
            note = f"against {number(test['baseline'], 2)} of {metrics['baseline']['run']}, p = {test['p_value']:.4f}"
            table.add_row(f"{label} difference", f"{test['difference']:+.2f}", note)
    console.print(table)
    console.print(summary(metrics), highlight=False, soft_wrap=True)
    if metrics["baseline"] is not None:
        against = f"against {metrics['baseline']['run']}: {search_summary(metrics['baseline'])}"
        console.print(against, highlight=False, soft_wrap=True)
    for name in ("bleu", "chrf", "ter"):
        console.print(f"{name}|{metrics['signature'][name]}", highlight=False, soft_wrap=True, style="dim")
