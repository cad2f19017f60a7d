"""The report of an evaluation: one HTML page that needs nothing beside it."""

import difflib
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

STYLE = """
:root { color-scheme: light dark; --line: #8884; --quiet: #777; --ink: #1f5fa8; --gold: #e08a00; --missed: #e0550033; }
@media (prefers-color-scheme: dark) { :root { --ink: #6db0ff; --quiet: #999; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1150px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
.quiet, figcaption span { color: var(--quiet); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .7rem; margin: 1.2rem 0; }
.card { border: 1px solid var(--line); border-radius: 8px; padding: .5rem .8rem; font-size: .87rem; }
.card b { display: block; font-size: 1.6rem; font-variant-numeric: tabular-nums; }
table { border-collapse: collapse; } td, th { padding: .3rem .7rem; border-bottom: 1px solid var(--line); }
th { text-align: left; } td { vertical-align: top; } code { font-size: .85em; overflow-wrap: anywhere; }
.sentences { width: 100%; table-layout: fixed; } .sentences th { cursor: pointer; user-select: none; }
.sentences th.up::after { content: " ▲"; } .sentences th.down::after { content: " ▼"; }
.sentences th:first-child { width: 3.2rem; text-align: right; }
.sentences th:last-child { width: 4.5rem; text-align: right; }
.sentences td { overflow-wrap: anywhere; } td.number { text-align: right; font-variant-numeric: tabular-nums; }
mark { background: var(--missed); color: inherit; border-radius: 3px; }
.panels { display: flex; flex-wrap: wrap; gap: 1.5rem; }
figure { margin: 1.5rem 0; padding-bottom: 1rem; border-bottom: 1px solid var(--line); overflow-x: auto; }
svg text { fill: currentColor; font-size: 12px; } .heatmap rect, .bars rect { fill: var(--ink); }
.heatmap .frame, .bars .base { fill: none; stroke: var(--line); }
.heatmap .sure { stroke: var(--gold); stroke-width: 2; }
.heatmap .possible { stroke: var(--gold); stroke-width: 2; stroke-dasharray: 3 2; }
.heatmap rect:hover { stroke: currentColor; stroke-width: 1.5; }
input { font: inherit; padding: .3rem .6rem; width: 20rem; max-width: 100%; margin-bottom: .6rem; }
"""

SCRIPT = """
const table = document.querySelector("table.sentences"), body = table.tBodies[0], rows = [...body.rows];
const value = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent;
table.querySelectorAll("th").forEach((head, column) => head.addEventListener("click", () => {
  const down = head.className === "up";
  table.querySelectorAll("th").forEach(other => other.className = "");
  head.className = down ? "down" : "up";
  const sign = down ? -1 : 1;
  rows.sort((a, b) => sign * value(a, column).localeCompare(value(b, column), undefined, { numeric: true }));
  body.append(...rows);
}));
document.querySelector("#filter").addEventListener("input", event => {
  const wanted = event.target.value.toLowerCase();
  rows.forEach(row => row.hidden = !row.textContent.toLowerCase().includes(wanted));
});
"""

SALIENCY_NOTE = (
    "<p class=quiet>Saliency: how much the probability of a word of the translation hangs on each word of the source, "
    "by the gradient of its logarithm times the source word's embedding, in absolute value; a row sums to 1.</p>"
)


class Sentence(NamedTuple):
    """A row of the table of sentences; `number` is its line, counted from 1."""

    number: int
    source: str
    hypothesis: str
    reference: str
    chrf: float


class Drawing(NamedTuple):
    """A sentence and its heatmaps as SVG, each under the name of what it shows."""

    sentence: Sentence
    pictures: Mapping[str, str]


def render_report(
    metrics: Mapping[str, Any], sentences: Sequence[Sentence], drawings: Sequence[Drawing], *, title: str
) -> str:
    """Return the page: scores with their settings, BLEU by length, heatmaps and a sortable table of all sentences."""
    parts = [
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>',
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>',
        f"<h1>{html.escape(title)}</h1><p class=quiet>{html.escape(summary(metrics))}</p>",
        _cards(metrics),
        _comparison(metrics.get("baseline")),
        "<h2>BLEU by source length</h2>" + _bars(metrics.get("bleu_by_length") or []),
        _drawings(drawings),
        _sentences(sentences),
        _settings(metrics),
        f"<script>{SCRIPT}</script></body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def summary(metrics: Mapping[str, Any]) -> str:
    """Say in a line what was scored and how it was translated."""
    return f"{metrics['sentences']:,} sentences of {metrics['split']} · {search_summary(metrics)}"


def search_summary(settings: Mapping[str, Any]) -> str:
    """Say in a line which model translated, and how."""
    penalties = f"length penalty {settings['length_penalty']}"
    if settings["coverage_penalty"]:
        penalties += f" · coverage penalty {settings['coverage_penalty']}"
    longest = f"at most {settings['max_length_ratio']:g} x source + {settings['max_length_offset']} subwords"
    copies = " · unknown words copied" if settings["replace_unknown"] else ""
    return (
        f"beam {settings['beam_size']} · {penalties} · {longest}{copies} · {settings['precision']} · "
        f"checkpoint {settings['checkpoint']}, step {settings['step']}"
        + "".join(f" · with {each}" for each in settings["ensemble"])
    )


def gold_note(metrics: Mapping[str, Any]) -> str:
    """Say what an alignment error rate, or its absence, is due to."""
    scored, gold = metrics["aer_sentences"], metrics["gold_sentences"]
    if not gold:
        return "no gold alignments"
    if not scored:
        return f"gold alignments, but in none of {gold:,} pairs are the model's words those between spaces"
    return "lower is better" if scored == gold else f"lower is better; {scored:,} of {gold:,} pairs"


def number(value: float | None, digits: int = 1) -> str:
    """Write a number for people; an en dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def _cards(metrics: Mapping[str, Any]) -> str:
    low, high = metrics["bleu_ci95"]
    cards = [
        ("BLEU", number(metrics["bleu"]), f"95%: {number(low)} – {number(high)}"),
        ("chrF", number(metrics["chrf"]), "higher is better"),
        ("TER", number(metrics["ter"]), "lower is better"),
        ("Perplexity", number(metrics["perplexity"], 2), "of the references, a subword"),
        ("AER", number(metrics["aer"], 3), gold_note(metrics)),
        *_further_cards(metrics),
        ("Attention entropy", number(metrics["attention_entropy"], 2), "nats a word"),
        ("Coverage deficit", number(metrics["coverage_deficit"], 2), "attention a source word lacks"),
        ("Repetition", number(_percent(metrics["repetition_rate"]), 2), "% of words"),
        ("Speed", number(metrics["sentences_per_second"]), "sentences/s"),
    ]
    inner = (
        f"<div class=card>{name}<b>{shown}</b><span class=quiet>{note}</span></div>" for name, shown, note in cards
    )
    return f"<div class=cards>{''.join(inner)}</div>"


def _further_cards(metrics: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What saliency and a reverse run say, where they were asked for."""
    cards = [
        ("AER, intersection", "intersection_aer", "with the reverse run"),
        ("AER, saliency", "saliency_aer", "lower is better"),
        ("Saliency–attention", "saliency_attention_spearman", "rank correlation"),
    ]
    return [(name, number(metrics[key], 3), note) for name, key, note in cards if metrics.get(key) is not None]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _comparison(baseline: Mapping[str, Any] | None) -> str:
    if baseline is None:
        return ""
    rows = [["", "baseline", "difference", "p (paired bootstrap)"]]
    for name, label in (("bleu", "BLEU"), ("chrf", "chrF")):
        test = baseline[name]
        rows.append([label, number(test["baseline"]), f"{test['difference']:+.2f}", number(test["p_value"], 4)])
    note = f"<p class=quiet>The baseline: {html.escape(search_summary(baseline))}</p>"
    return f"<h2>Compared with {html.escape(str(baseline['run']))}</h2>{_table(rows)}{note}"


def _bars(buckets: Sequence[Mapping[str, Any]]) -> str:
    """A bar a bucket of source lengths."""
    if not buckets:
        return "<p class=quiet>No sentence has words.</p>"
    width, height, step = 60 + 74 * len(buckets), 190, 74
    parts = [f'<svg class="bars" width="{width}" height="{height}" role="img">']
    for index, bucket in enumerate(buckets):
        x, tall = 30 + step * index, 1.3 * bucket["bleu"]
        words = f"{bucket['min_words']}–{bucket['max_words']}"
        middle = f'x="{x + 25}" text-anchor="middle"'
        parts.append(
            f'<rect x="{x}" y="{150 - tall:.1f}" width="50" height="{tall:.1f}" rx="2"/>'
            f'<text {middle} y="{144 - tall:.1f}">{number(bucket["bleu"])}</text>'
            f'<text {middle} y="167">{words}</text><text {middle} y="183" opacity=".6">n={bucket["sentences"]}</text>'
        )
    parts.append(f'<path class="base" d="M20 150.5H{width - 30}"/>')
    return "".join(parts) + "</svg><p class=quiet>Words of the source; n: sentences.</p>"


def _drawings(drawings: Sequence[Drawing]) -> str:
    if not drawings:
        return ""
    names = list(drawings[0].pictures)
    parts = [
        f"<h2>{' and '.join(names).capitalize()}</h2><p class=quiet>A row is a word of the translation, a column a "
        "word of the source. Point at a cell for its weight. Orange: gold links, where the translation is the "
        "reference (dashed: possible only).</p>",
        SALIENCY_NOTE if "saliency" in names else "",
    ]
    for sentence, pictures in drawings:
        lines = [("source", sentence.source), ("translation", sentence.hypothesis), ("reference", sentence.reference)]
        caption = "<br>".join(f"<span>{name}</span> {html.escape(text)}" for name, text in lines)
        labels = {name: f"<span class=quiet>{html.escape(name)}</span><br>" if len(names) > 1 else "" for name in names}
        panels = "".join(f"<div>{labels[name]}{svg}</div>" for name, svg in pictures.items())
        parts.append(
            f"<figure><figcaption><span>line {sentence.number}</span><br>{caption}</figcaption>"
            f"<div class=panels>{panels}</div></figure>"
        )
    return "\n".join(part for part in parts if part)


def _sentences(sentences: Sequence[Sentence]) -> str:
    heads = "".join(f"<th>{name}</th>" for name in ("line", "source", "translation", "reference", "chrF"))
    rows = (
        f"<tr><td class=number>{each.number}</td><td>{html.escape(each.source)}</td>"
        f'<td data-value="{html.escape(each.hypothesis)}">{mark_differences(each.hypothesis, each.reference)}</td>'
        f"<td>{html.escape(each.reference)}</td>"
        f'<td class=number data-value="{each.chrf:.4f}">{number(each.chrf)}</td></tr>'
        for each in sentences
    )
    return (
        "<h2>Sentences</h2><p class=quiet>Click a heading to sort. Marked: words of the translation that are not in "
        'the reference at their place.</p><input id="filter" type="search" placeholder="Show sentences with …">'
        f"<table class=sentences><thead><tr>{heads}</tr></thead><tbody>\n" + "\n".join(rows) + "</tbody></table>"
    )


def mark_differences(hypothesis: str, reference: str) -> str:
    """Return the hypothesis as HTML, with the words that do not align with the reference in `<mark>`."""
    words = hypothesis.split()
    matcher = difflib.SequenceMatcher(None, words, reference.split(), autojunk=False)
    agreed = {block.a + k for block in matcher.get_matching_blocks() for k in range(block.size)}
    escaped = map(html.escape, words)
    return " ".join(word if i in agreed else f"<mark>{word}</mark>" for i, word in enumerate(escaped))


def _settings(metrics: Mapping[str, Any]) -> str:
    """Everything in metrics.json that is one value, and the signatures: no number without its settings."""
    single = {key: value for key, value in metrics.items() if isinstance(value, str | int | float)}
    rows = [[key, _setting(value)] for key, value in single.items()]
    rows += [[f"signature of {name}", text] for name, text in metrics["signature"].items()]
    return "<h2>Settings</h2>" + _table(rows)


def _setting(value: str | int | float) -> str:
    """Six digits are enough for a page; metrics.json has them all."""
    return f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def _table(rows: Iterable[Sequence[str]]) -> str:
    lines = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows)
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"
