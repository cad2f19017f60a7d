"""The report of an evaluation: a table on the terminal, and a self-contained HTML page made from `report.html.j2`."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np
from markupsafe import Markup, escape
from rich.console import Console
from rich.markup import escape as escape_markup
from rich.table import Column, Table

from nmt.alignment.pharaoh import Links
from nmt.alignment.weights import Alignment
from nmt.evaluation.registry import Values, compared, format_number, report_cards, shown_metrics
from nmt.text.words import text_words, word_spans
from nmt.view.alignment import asset


class Sentence(NamedTuple):
    """A row of the table of sentences; `number` is its line, counted from 1."""

    number: int
    source: str
    hypothesis: str
    reference: str
    chrf: float
    baseline: str | None = None  # the translation of the run that is compared with
    baseline_chrf: float = 0.0

    @property
    def difference(self) -> float:
        """The chrF of the translation minus that of the baseline's."""
        return self.chrf - self.baseline_chrf


def render_report(
    metrics: Values,
    sentences: Sequence[Sentence],
    drawn: Sequence[Sentence],
    *,
    title: str,
    alignments: Mapping[int, Values] | None = None,
) -> str:
    """Return the page: scores with their settings, BLEU by length, heatmaps and a sortable table of all sentences.

    The worst sentences come first. A row opens the view of its alignment if `alignments` has its data, by its number
    (see `alignment_data`); the views of `drawn`, which it must have, are shown from the beginning. All text is escaped.
    """
    return template("report.html.j2", autoescape=True).render(
        title=title,
        metrics=metrics,
        summary=summary(metrics),
        search_summary=search_summary,
        cards=report_cards(metrics),
        compared=compared(),
        baseline=metrics.get("baseline"),
        buckets=metrics.get("bleu_by_length"),
        drawn=drawn,
        has_saliency=any("saliency" in data["matrices"] for data in (alignments or {}).values()),
        sentences=sorted(sentences, key=lambda sentence: sentence.chrf),
        has_baseline=any(sentence.baseline is not None for sentence in sentences),
        alignments=alignments or {},
        view_script=asset("alignment.js") if alignments else "",
        view_style=asset("alignment.css") if alignments else "",
    )


def alignment_data(alignment: Alignment, saliency: Alignment | None, gold: Links | None) -> dict[str, Any]:
    """Return a row's data for the element of `nmt.view`, with weights in tenths of a percent, rounded."""
    weights = {"weights": alignment.weights} | ({} if saliency is None else {"saliency": saliency.weights})
    matrices = {name: np.rint(1000 * matrix).astype(int).tolist() for name, matrix in weights.items()}
    data = {"source_words": alignment.source_words, "target_words": alignment.target_words, "matrices": matrices}
    # A link that is only possible is dashed.
    known = {} if gold is None else {"gold": {"sure": sorted(gold.sure), "possible": sorted(gold.possible - gold.sure)}}
    return data | known


def template(name: str, *, autoescape: bool) -> jinja2.Template:
    """Return a template of this folder."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=autoescape,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.filters["marked"] = mark_differences
    return environment.get_template(name)


def summary(metrics: Values) -> str:
    """Say in a line what was scored and how it was translated."""
    return f"{metrics['sentences']:,} sentences of {metrics['split']} · {search_summary(metrics)}"


def search_summary(settings: Values) -> str:
    """Say in a line which model translated, and how."""
    return f"{decoding_summary(settings)} · checkpoint {settings['checkpoint']}, step {settings['step']}" + "".join(
        f" · with {run}" for run in settings["ensemble"]
    )


def decoding_summary(settings: Values) -> str:
    """Say in a line how a model translated."""
    penalties = f"length penalty {settings['length_penalty']}"
    if settings["coverage_penalty"]:
        penalties += f" · coverage penalty {settings['coverage_penalty']}"
    limit = f"at most {settings['max_length_ratio']:g} x source + {settings['max_length_offset']} subwords"
    copies = " · unknown words copied" if settings["replace_unknown"] else ""
    neighbors = ""
    if settings.get("neighbors"):  # older evaluations have none
        weight, temperature = settings["neighbor_weight"], settings["neighbor_temperature"]
        neighbors = f" · {settings['neighbors']} neighbors, weight {weight:g}, temperature {temperature:g}"
    return f"beam {settings['beam_size']} · {penalties} · {limit}{copies}{neighbors} · {settings['precision']}"


def mark_differences(hypothesis: str, reference: str) -> tuple[Markup, Markup]:
    """Return both as HTML: the hypothesis with the words that do not align with the reference in `<mark>`, the
    reference with those that the hypothesis lacks in `<mark class=missing>`.
    """
    words = text_words(hypothesis), text_words(reference)
    blocks = difflib.SequenceMatcher(None, *words, autojunk=False).get_matching_blocks()
    aligned = [(block.a + k, block.b + k) for block in blocks for k in range(block.size)]
    return (
        mark_others(hypothesis, {ours for ours, _ in aligned}, Markup("<mark>{}</mark>")),
        mark_others(reference, {theirs for _, theirs in aligned}, Markup("<mark class=missing>{}</mark>")),
    )


def mark_others(line: str, matching: Collection[int], mark: Markup) -> Markup:
    """Return a line as HTML, with the words that are not in `matching` marked."""
    parts, done = [], 0
    for index, (start, end) in enumerate(word_spans(line)):
        word = line[start:end]
        parts += [escape(line[done:start]), escape(word) if index in matching else mark.format(word)]
        done = end
    return Markup("").join(parts)


class PipeConsole(Console):
    """A console that raises BrokenPipeError where rich would exit with status 1."""

    def on_broken_pipe(self) -> None:
        """Raise again the error that is being handled."""
        raise


def print_table(metrics: Values, console: Console | None = None) -> None:
    """Print the scores with their settings."""
    console = console or PipeConsole()
    baseline = metrics["baseline"]
    title = f"{metrics['split']}: {metrics['sentences']:,} sentences"
    table = Table("metric", Column("score", justify="right"), "", title=title, title_justify="left")
    for name, metric in shown_metrics(metrics).items():
        table.add_row(*map(escape_markup, metric.table_display.as_cells(name, metrics)))
    if baseline is not None:
        for name, label in compared().items():
            test = baseline[name]
            note = f"against {format_number(test['baseline'], 2)} of {baseline['run']}, p = {test['p_value']:.4f}"
            table.add_row(f"{label} difference", f"{test['difference']:+.2f}", escape_markup(note))
    console.print(table)
    unstyled: dict[str, Any] = {"highlight": False, "soft_wrap": True, "markup": False}
    console.print(summary(metrics), **unstyled)
    if baseline is not None:
        console.print(f"against {baseline['run']}: {search_summary(baseline)}", **unstyled)
    for name, signature in metrics["signature"].items():
        if name != "bleu_ci95":
            console.print(f"{name}|{signature}", **unstyled, style="dim")
