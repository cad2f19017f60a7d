"""The metrics, one entry each: evaluation, validation, table, report, TensorBoard and the best checkpoint read them.

To add a metric, write a function of an `Outcome` and enter it in `METRICS`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple

from sacrebleu.metrics.base import Metric as SacrebleuMetric

from nmt.alignment.weights import attention_entropy, coverage_deficit
from nmt.errors import UserError, unknown
from nmt.evaluation.metrics import Score, bleu, chrf, corpus_score, repetition_rate, ter
from nmt.evaluation.outcome import Outcome
from nmt.text.words import is_spaceless, with_spaces

Values = Mapping[str, Any]  # the contents of metrics.json


class Display(NamedTuple):
    """How people see a metric."""

    label: str
    digits: int = 2  # after the point
    note: str | Callable[[Values], str] = ""  # beside the number, or a function of metrics.json that returns it
    scale: float = 1.0  # a factor of the number shown; 100 for percent

    def as_cells(self, name: str, values: Values) -> tuple[str, str, str]:
        """Return label, number and note of the metric of that name."""
        value = values.get(name)
        number = format_number(None if value is None else self.scale * value, self.digits)
        return self.label, number, self.note if isinstance(self.note, str) else self.note(values)


@dataclass(frozen=True)
class Metric:
    """A measure of translations, or of their alignments, and how it is shown and used."""

    measure: Callable[[Outcome], float | Score | None]  # with a signature if it has one; None if not available
    table_display: Display  # in the table
    _: KW_ONLY
    report_display: Display | None = None  # in the report, if not as in the table
    in_report: bool = True  # whether the report shows it at all
    better: Literal["higher", "lower"] | None = None  # without a better direction it cannot be `trainer.metric`
    at_validation: bool = True  # measured at validations, during training
    at_evaluation: bool = True  # measured by evaluations
    on_request: bool = False  # measured only by evaluations that ask for it; table and report show it where they did
    needs_gold: bool = False
    # Builds the metric, from tokenizer and case, for the comparison with a baseline by resampling.
    sacrebleu: Callable[[str, bool], SacrebleuMetric] | None = None


def by_sacrebleu(build: Callable[[str, bool], SacrebleuMetric]) -> Callable[[Outcome], Score]:
    """Return the measure of a metric of sacrebleu."""
    return lambda outcome: corpus_score(
        build(outcome.tokenize, outcome.lowercase), outcome.hypotheses, outcome.references
    )


def measure_ter(outcome: Outcome) -> Score:
    """Return TER; where most references are in a script without spaces, of characters."""
    if not is_spaceless(outcome.references):
        return corpus_score(ter(outcome.lowercase), outcome.hypotheses, outcome.references)
    # `asian` divides East Asian scripts alone.
    sides = outcome.hypotheses, outcome.references
    hypotheses, references = ([with_spaces(line) for line in lines] for lines in sides)
    return corpus_score(ter(outcome.lowercase, asian=True), hypotheses, references)


def format_number(value: float | None, digits: int = 1) -> str:
    """Write a number for people; an en dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def interval_note(text: str) -> Callable[[Values], str]:
    """Return the note of BLEU; the text has a place for either bound of the confidence interval."""
    return lambda values: text.format(*map(format_number, values["bleu_ci95"]))


def gold_note(values: Values) -> str:
    """Say which sentence pairs an alignment error rate is of, or why there is none."""
    scored, gold = values["aer_sentences"], values["gold_sentences"]
    if not gold:
        return "no gold alignments"
    if not scored:
        return f"gold alignments, but in none of {gold:,} pairs are the model's words those between spaces"
    return "lower is better" if scored == gold else f"lower is better; {scored:,} of {gold:,} pairs"


OF_THE_MACHINE = ("sentences_per_second",)  # not of the model alone
METRICS: dict[str, Metric] = {
    "loss": Metric(lambda outcome: outcome.loss, Display("loss", 3), better="lower", at_evaluation=False),
    "bleu": Metric(
        by_sacrebleu(bleu),
        Display("BLEU", 2, interval_note("95% interval {} to {}")),
        report_display=Display("BLEU", 1, interval_note("95%: {} – {}")),
        better="higher",
        sacrebleu=bleu,
    ),
    "chrf": Metric(
        by_sacrebleu(chrf),
        Display("chrF"),
        report_display=Display("chrF", 1, "higher is better"),
        better="higher",
        sacrebleu=chrf,
    ),
    "ter": Metric(
        measure_ter,
        Display("TER", 2, "lower is better"),
        report_display=Display("TER", 1, "lower is better"),
        better="lower",
        at_validation=False,  # it takes long
    ),
    "perplexity": Metric(
        lambda outcome: outcome.perplexity, Display("perplexity", 2, "of the references, a subword"), better="lower"
    ),
    "aer": Metric(
        lambda outcome: outcome.alignment.get("aer"), Display("AER", 3, gold_note), better="lower", needs_gold=True
    ),
    "intersection_aer": Metric(
        lambda outcome: outcome.alignment.get("intersection_aer"),
        Display("AER, intersection", 3, "with the reverse run"),
        on_request=True,
    ),
    "reverse_aer": Metric(
        lambda outcome: outcome.alignment.get("reverse_aer"),
        Display("AER, reverse", 3, "of the reverse run alone"),
        in_report=False,
        on_request=True,
    ),
    "saliency_aer": Metric(
        lambda outcome: outcome.alignment.get("saliency_aer"),
        Display("AER, saliency", 3, "lower is better"),
        on_request=True,
    ),
    "saliency_attention_spearman": Metric(
        lambda outcome: outcome.saliency_correlation.spearman,
        Display("saliency-attention", 3, "mean rank correlation, Spearman"),
        report_display=Display("Saliency–attention", 3, "rank correlation"),
        on_request=True,
    ),
    "saliency_attention_kendall": Metric(
        lambda outcome: outcome.saliency_correlation.kendall,
        Display("", 3, "Kendall"),
        in_report=False,
        on_request=True,
    ),
    "attention_entropy": Metric(
        lambda outcome: attention_entropy(outcome.weights),
        Display("attention entropy", 3, "nats a word"),
        report_display=Display("Attention entropy", 2, "nats a word"),
    ),
    "coverage_deficit": Metric(
        lambda outcome: coverage_deficit(outcome.weights),
        Display("coverage deficit", 3, "attention that a source word lacks"),
        report_display=Display("Coverage deficit", 2, "attention a source word lacks"),
    ),
    "repetition_rate": Metric(
        lambda outcome: repetition_rate(outcome.hypotheses),
        Display("repetition rate", 4, "share of words"),
        report_display=Display("Repetition", 2, "% of words", scale=100),
    ),
    "search_errors": Metric(
        lambda outcome: outcome.search_errors,
        Display("search errors", 0, "sentences that greedy search translates with a better score"),
        report_display=Display("Search errors", 0, "greedy search scores better"),
        at_validation=False,
    ),
    "sentences_per_second": Metric(
        lambda outcome: len(outcome.translations) / outcome.seconds if outcome.seconds else None,
        Display("speed", 1, lambda values: f"sentences/s, {format_number(values['seconds'])} s"),
        report_display=Display("Speed", 1, "sentences/s"),
        at_validation=False,
    ),
}


def measure(outcome: Outcome, names: Iterable[str]) -> tuple[dict[str, float | None], dict[str, str]]:
    """Return the values of metrics, and the signatures of those that have one."""
    scores = {name: METRICS[name].measure(outcome) for name in names}
    signatures = {name: score.signature for name, score in scores.items() if isinstance(score, Score)}
    return {name: score.value if isinstance(score, Score) else score for name, score in scores.items()}, signatures


def names_at(stage: Literal["validation", "evaluation"]) -> list[str]:
    """Return the metrics that are measured at a stage."""
    if stage == "evaluation":
        return [name for name, metric in METRICS.items() if metric.at_evaluation]
    return [name for name, metric in METRICS.items() if metric.at_validation and not metric.on_request]


def shown_metrics(values: Values) -> dict[str, Metric]:
    """Return the metrics that table and report of an evaluation show."""
    metrics = {name: METRICS[name] for name in names_at("evaluation")}
    return {name: metric for name, metric in metrics.items() if not metric.on_request or values.get(name) is not None}


def report_cards(values: Values) -> list[tuple[str, str, str]]:
    """Return label, number and note of each card of the report."""
    cards = []
    for name, metric in shown_metrics(values).items():
        if metric.in_report:
            label = metric.table_display.label
            display = metric.report_display or metric.table_display._replace(label=label[:1].upper() + label[1:])
            cards.append(display.as_cells(name, values))
    return cards


def compared() -> dict[str, str]:
    """Return the metrics that are compared with a baseline, and their labels."""
    return {name: metric.table_display.label for name, metric in METRICS.items() if metric.sacrebleu is not None}


def check_watched(name: str, *, has_gold: bool) -> None:
    """Raise UserError if `trainer.metric=name` cannot be measured at validations, or has no direction."""
    choices = [metric for metric in names_at("validation") if METRICS[metric].better]
    if name not in choices:
        raise unknown("trainer.metric", name, choices)
    if METRICS[name].needs_gold and not has_gold:
        raise UserError(
            f"trainer.metric={name} needs gold alignments of the validation text: set data.validation.alignment"
        )
