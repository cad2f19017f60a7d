"""Comparison of attention mechanisms: every score x normalizer x window, trained alike on the built-in corpus.

    python scripts/study_attention.py [key=value ...] [--quick] [--scores NAME ...] [--normalizers NAME ...]
                                      [--windows NAME ...] [--standard] [--minutes M]

Luong et al. (2015, Tables 4 and 6) compared scores and windows by BLEU and alignment error rate; these are theirs with
more scores, and with normalizers. Columns: BLEU (greedy) and alignment error rate on the test split, entropy of
attention in nats per word, fraction of weights on real tokens that are exactly 0, target tokens/s of training,
parameters, updates and minutes of training.

So that all of them fit into 20 minutes, sentences have up to 7 words, local windows reach 2 tokens to either side, and
the model is small: about 20 s of training on one core tell the mechanisms apart. `--standard` trains the model of
README's command on sentences of up to 60 words, with windows that reach 5 tokens; it needs 5 minutes a run and core.
`concat` is `additive` under another name, so it is left out unless named.

Finished runs are not trained again, and interrupted ones continue. So the table can be made in several sessions, with
different shares of time; it holds all finished runs of the output folder, and other settings than theirs are refused:
give another --output. For 5 minutes a run on two cores:

    python scripts/study_attention.py --standard --normalizers softmax --windows global --minutes 20
    python scripts/study_attention.py --standard --minutes 240
"""

import argparse
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from nmt.cli import user_errors
from nmt.config.schema import TrainConfig
from nmt.errors import UserError, unknown
from studies.jobs import run_jobs
from studies.runs import cached, read_metrics, train_and_evaluate, training_cost
from studies.study import OVERHEAD, SMALL, Study, add_workers, build_parser, check_settings, log, make_output_folder
from studies.tables import report

RESULT = "figures.json"  # in the folder of a finished run


class AttentionSetting(NamedTuple):
    """The overrides of all runs, and their time."""

    overrides: Sequence[str]
    overhead: float  # minutes of a run besides training
    min_minutes: float  # of training, to learn anything


STANDARD = AttentionSetting(("model.attention.radius=5",), OVERHEAD, min_minutes=1.0)
SHORT = AttentionSetting(
    (
        *SMALL,
        *("data.grammar.max_length=7", "data.grammar.long_length=6", "data.grammar.test_size=500"),
        *("model.attention.radius=2", "trainer.max_epochs=null"),
    ),
    overhead=0.05,
    min_minutes=0.25,
)

Member = TypeVar("Member")


class AttentionComposition(NamedTuple):
    """The names of the three parts of an attention."""

    score: str
    normalizer: str
    window: str


PARTS = AttentionComposition._fields


class Job(NamedTuple):
    """A run of the study."""

    composition: AttentionComposition
    config: TrainConfig

    @property
    def result(self) -> Path:
        """The file that holds its row of the table once it is finished."""
        return Path(self.config.run_dir) / RESULT


def main() -> None:
    """Train the selected compositions, and write the table of all finished ones."""
    parser = build_parser(__doc__ or "", minutes=20.0)
    add_workers(parser)
    parser.add_argument("--standard", action="store_true", help="README's model and sentences; 5 minutes a run")
    for part in PARTS:
        parser.add_argument(f"--{part}s", nargs="+", metavar="NAME", help="only these (give key=value before)")
    options = parser.parse_intermixed_args()
    with user_errors():
        name = "attention_standard" if options.standard else "attention"
        option_of_key = {f"model.attention.{part}": f"--{part}s" for part in PARTS}
        study = Study.from_options(options, name, option_of_key)
        setting = STANDARD if options.standard else SHORT
        compositions = valid_compositions(study.configure(*setting.overrides), selected_compositions(options))
        limits = study.limits(len(compositions), overhead=setting.overhead)
        base = study.configure(*setting.overrides, *limits)
        warn(base, len(compositions), setting.min_minutes)
        all_jobs = (job_of(study, base, composition) for composition in all_compositions())
        check_settings((job.config for job in all_jobs), limits_may_differ=True)
        make_output_folder(options, name)
        run_all(study, [job_of(study, base, composition) for composition in compositions])


def run_all(study: Study, jobs: Sequence[Job]) -> None:
    """Run the jobs that are not finished, in parallel; write the table, also after an error or interrupt."""
    unfinished = [job for job in jobs if not job.result.is_file()]
    log(f"{len(jobs) - len(unfinished)} of {len(jobs)} runs are finished, {len(unfinished)} to do")
    try:
        for number, (job, row) in enumerate(run_jobs(run_job, unfinished, study.workers), start=1):
            log(f"{number} of {len(unfinished)}: {' x '.join(job.composition)}, BLEU {row['bleu']:.1f}")
    finally:
        if rows := list(finished_rows(study)):
            report(rows, partial(draw, rows), study.output, title="attention: score x normalizer x window")


def selected_compositions(options: argparse.Namespace) -> list[AttentionComposition]:
    """Return the compositions that the command line names; raise UserError if a name is not in its registry."""
    selected = (options.scores, options.normalizers, options.windows)
    if options.quick and not any(selected):
        return quick_compositions()
    names_of_parts: list[list[str]] = []
    for part, names, registry in zip(PARTS, selected, registries(), strict=True):
        for name in names or ():
            if name not in registry:
                raise unknown(part, name, registry)
        names_of_parts.append(list(dict.fromkeys(names)) if names else without_aliases(registry))
    return [AttentionComposition(*names) for names in itertools.product(*names_of_parts)]


def quick_compositions() -> list[AttentionComposition]:
    """Return every score with softmax and the global window, and every normalizer and window with additive."""
    scores, normalizers, windows = map(without_aliases, registries())
    default = AttentionComposition("additive", "softmax", "global")
    compositions = [default._replace(score=name) for name in scores]
    compositions += [default._replace(normalizer=name) for name in normalizers]
    compositions += [default._replace(window=name) for name in windows]
    return list(dict.fromkeys(compositions))


def all_compositions() -> Iterator[AttentionComposition]:
    """Yield all compositions, in the order of the registries."""
    return itertools.starmap(AttentionComposition, itertools.product(*registries()))


def registries() -> tuple[Mapping[str, Any], ...]:
    """Return the registries of the three parts; importing them takes seconds."""
    from nmt.attention.normalizers import NORMALIZERS
    from nmt.attention.scores import SCORES
    from nmt.attention.windows import WINDOWS

    return SCORES, NORMALIZERS, WINDOWS


def without_aliases(registry: Mapping[str, Member]) -> list[str]:
    """Return the names of a registry; of several names for one member, the first."""
    first_names: dict[Member, str] = {}
    for name, member in registry.items():
        first_names.setdefault(member, name)
    return list(first_names.values())


def valid_compositions(base: TrainConfig, compositions: Sequence[AttentionComposition]) -> list[AttentionComposition]:
    """Return the compositions valid with the other settings, and log the others; raise UserError if none is valid."""
    from nmt.models.build import check_model

    valid = []
    for composition in compositions:
        try:
            check_model(with_attention(base, composition).model, joint=base.tokenizer.joint)
            valid.append(composition)
        except UserError as error:
            log(f"left out {' x '.join(composition)}: {error}")
    if not valid:
        raise UserError("no composition is left: change the overrides, or choose other scores, normalizers or windows")
    return valid


def job_of(study: Study, base: TrainConfig, composition: AttentionComposition) -> Job:
    """Return the run of a composition."""
    run_dir = str(study.run_dir("-".join(composition)))
    return Job(composition, replace(with_attention(base, composition), run_dir=run_dir))


def with_attention(base: TrainConfig, composition: AttentionComposition) -> TrainConfig:
    """Return the configuration with another attention."""
    attention = replace(base.model.attention, **composition._asdict())
    return replace(base, model=replace(base.model, attention=attention))


def warn(config: TrainConfig, runs: int, min_minutes: float) -> None:
    """Log a warning where each of `runs` runs has less than `min_minutes` of training."""
    minutes = config.trainer.max_minutes
    if minutes is not None and minutes < min_minutes:
        log(
            f"warning: {runs} runs have {minutes:.2f} minutes of training each, too few to learn: choose fewer with "
            "--scores, --normalizers, --windows, or give more --minutes"
        )


def run_job(job: Job) -> dict[str, Any]:
    """Return the row of a composition in the table, trained unless it is finished."""
    row: dict[str, Any] = cached(job.result, partial(measure, job))
    return row


def measure(job: Job) -> dict[str, Any]:
    """Train and evaluate a composition; return its row."""
    run = train_and_evaluate(job.config)
    metrics = read_metrics(run)
    return {
        **job.composition._asdict(),
        **{name: metrics[name] for name in ("bleu", "aer", "attention_entropy")},
        "exact_zeros": fraction_of_zeros(run),
        **training_cost(run),
    }


def fraction_of_zeros(run: Path) -> float:
    """Return the fraction of the weights between real tokens that are exactly 0, on the validation split."""
    import torch

    from nmt.data.batch import fixed_batches
    from nmt.data.corpus import load_split
    from nmt.data.tables import encode
    from nmt.models.checkpoint import load_checkpoint

    loaded = load_checkpoint(run)
    data = loaded.config.data
    corpus = load_split(data, "validation")
    encoded = encode(corpus, loaded.tokenizers, cache_dir=data.cache_dir, num_workers=data.num_workers)
    zeros = weights = 0
    with torch.inference_mode():
        for batch in fixed_batches(encoded.source, encoded.target, 4_096):
            real = batch.target_mask[:, :, None] & batch.source_mask[:, None]
            zeros += int((loaded.model(batch).weights[real] == 0).sum())
            weights += int(real.sum())
    return zeros / weights


def finished_rows(study: Study) -> Iterator[dict[str, Any]]:
    """Yield the rows of all finished runs of the output folder, in the order of the registries."""
    for composition in all_compositions():
        file = study.run_dir("-".join(composition)) / RESULT
        if file.is_file():
            yield json.loads(file.read_text(encoding="utf-8"))


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw BLEU above and alignment error rate below: a panel per window, a row per score, a column per normalizer."""
    from matplotlib.figure import Figure

    scores, normalizers, windows = (list(dict.fromkeys(row[part] for row in rows)) for part in PARTS)
    size = (2.2 + 0.9 * len(normalizers) * len(windows), 1.8 + 0.7 * len(scores))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(2, len(windows), squeeze=False, sharex=True, sharey=True)
    row_of = {tuple(row[part] for part in PARTS): row for row in rows}
    for line, (metric, label, colors, form) in enumerate(
        (("bleu", "BLEU", "Blues", ".1f"), ("aer", "AER", "Blues_r", ".2f"))
    ):
        values = [value for row in rows if not math.isnan(value := value_of(row, metric))]
        lowest, highest = min(values, default=0.0), max(values, default=1.0)
        for axes, window in zip(panels[line], windows, strict=True):
            axes.set_title(f"{label}, {window}", fontsize=9)
            axes.set_xticks(range(len(normalizers)), normalizers, fontsize=8)
            axes.set_yticks(range(len(scores)), scores, fontsize=8)
            cells = [[value_of(row_of.get((s, n, window)), metric) for n in normalizers] for s in scores]
            axes.imshow(cells, cmap=colors, vmin=lowest, vmax=highest, aspect="auto")
            annotate(axes, cells, form, middle=(lowest + highest) / 2, dark_above=metric == "bleu")
    figure.savefig(path, dpi=120)


def value_of(row: Mapping[str, Any] | None, metric: str) -> float:
    """Return a metric of a row, NaN if there is none."""
    return math.nan if row is None or row[metric] is None else float(row[metric])


def annotate(axes: Any, cells: Sequence[Sequence[float]], form: str, *, middle: float, dark_above: bool) -> None:
    """Write each value into its cell, in white if the cell is dark."""
    for y, line in enumerate(cells):
        for x, value in enumerate(line):
            if not math.isnan(value):
                color = "white" if (value > middle) == dark_above else "black"
                axes.text(x, y, f"{value:{form}}", ha="center", va="center", fontsize=8, color=color)


if __name__ == "__main__":
    main()
