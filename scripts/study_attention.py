"""Which attention? Every score x normalizer x window, trained alike on the built-in corpus.

Luong et al. (2015, Table 4) compared scores and windows by BLEU and by alignment error rate; this is their table with
more scores, and with the normalizers beside them. Columns: BLEU (greedy) and alignment error rate on the test split,
entropy of attention in nats a word, share of weights on real tokens that are exactly 0, target tokens/s of training,
parameters, updates and minutes of training.

So that all of them fit into 20 minutes, sentences have up to 7 words, local windows reach 2 tokens to either side, and
the model is small: on a core it learns in some 20 s enough to tell them apart. `--standard` trains the model of
README's command on sentences of up to 60 words, with windows that reach 5 tokens; give it 5 minutes a run and core.
`concat` is `additive` under another name, so it is left out unless named.

A run that is finished is not trained again, and one that was interrupted goes on. So the table can be made in pieces,
each with its share of time; it holds all finished runs of the output folder, and other settings than theirs are
refused: give another --output. For 5 minutes a run on two cores:

    python scripts/study_attention.py --standard --normalizers softmax --windows global --minutes 20
    python scripts/study_attention.py --standard --minutes 240
"""

import argparse
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from nmt.cli import user_errors
from nmt.config.schema import TrainConfig
from nmt.errors import UserError, unknown
from studies.side_by_side import side_by_side
from studies.study import (
    OVERHEAD,
    PICTURE,
    SMALL,
    TABLE,
    Study,
    add_workers,
    build_parser,
    check_settings,
    effort_of,
    print_table,
    remembered,
    scores_of,
    tell,
    train_and_evaluate,
    write_table,
)

FIGURES = "figures.json"  # in the folder of a run that is finished


class Setting(NamedTuple):
    """What is trained, and the minutes that a run takes beside training and needs of it at least to learn."""

    overrides: Sequence[str]
    overhead: float
    least: float


STANDARD = Setting(("model.attention.radius=5",), OVERHEAD, least=1.0)
SHORT = Setting(
    (
        *SMALL,
        *("data.grammar.max_length=7", "data.grammar.long_length=6", "data.grammar.test_size=500"),
        *("model.attention.radius=2", "trainer.max_epochs=null"),
    ),
    overhead=0.05,
    least=0.25,
)

Part = TypeVar("Part")


class Composition(NamedTuple):
    """The three choices that make an attention."""

    score: str
    normalizer: str
    window: str


class Job(NamedTuple):
    """A run of the study."""

    composition: Composition
    config: TrainConfig

    @property
    def file(self) -> Path:
        """Where its figures are once it is finished."""
        return Path(self.config.run_dir) / FIGURES


def main() -> None:
    """Train what the command line asks for, and write the table of all that is finished."""
    parser = build_parser(__doc__ or "", minutes=20.0)
    add_workers(parser)
    parser.add_argument("--standard", action="store_true", help="README's model and sentences; 5 minutes a run")
    for part in ("scores", "normalizers", "windows"):
        parser.add_argument(f"--{part}", nargs="+", metavar="NAME", help="only these (give key=value before)")
    options = parser.parse_intermixed_args()
    with user_errors():
        study = Study.of(options, "attention_standard" if options.standard else "attention")
        setting = STANDARD if options.standard else SHORT
        compositions = trainable(study.configure(*setting.overrides), chosen(options))
        limits = study.limits(len(compositions), overhead=setting.overhead)
        base = study.configure(*setting.overrides, *limits)
        warn(base, len(compositions), setting.least)
        check_settings((job_of(study, base, each).config for each in everything()), shares_may_differ=True)
        jobs = [job_of(study, base, each) for each in compositions]
        left = [job for job in jobs if not job.file.is_file()]
        tell(f"{len(jobs) - len(left)} of {len(jobs)} runs are finished, {len(left)} to do")
        try:
            for number, (job, row) in enumerate(side_by_side(figures, left, study.workers), start=1):
                tell(f"{number} of {len(left)}: {' x '.join(job.composition)}, BLEU {row['bleu']:.1f}")
        finally:
            report(study)


def chosen(options: argparse.Namespace) -> list[Composition]:
    """Return the compositions that the command line asks for.

    Raises:
        UserError: there is no such part.
    """
    from nmt.attention.normalizers import NORMALIZERS
    from nmt.attention.scores import SCORES
    from nmt.attention.windows import WINDOWS

    named = (options.scores, options.normalizers, options.windows)
    if options.quick and not any(named):
        return quick()
    parts: list[list[str]] = []
    registries: tuple[Mapping[str, Any], ...] = (SCORES, NORMALIZERS, WINDOWS)
    for part, names, registry in zip(Composition._fields, named, registries, strict=True):
        for name in names or ():
            if name not in registry:
                raise unknown(part, name, registry)
        parts.append(list(dict.fromkeys(names)) if names else without_aliases(registry))
    return [Composition(*names) for names in itertools.product(*parts)]


def quick() -> list[Composition]:
    """Return every score with the commonest normalizer and window, and every other of these with additive."""
    from nmt.attention.normalizers import NORMALIZERS
    from nmt.attention.scores import SCORES
    from nmt.attention.windows import WINDOWS

    usual = Composition("additive", "softmax", "global")
    return [
        *(usual._replace(score=name) for name in without_aliases(SCORES)),
        *(usual._replace(normalizer=name) for name in NORMALIZERS if name != usual.normalizer),
        *(usual._replace(window=name) for name in WINDOWS if name != usual.window),
    ]


def everything() -> Iterator[Composition]:
    """Yield all compositions, in the order of the registries."""
    from nmt.attention.normalizers import NORMALIZERS
    from nmt.attention.scores import SCORES
    from nmt.attention.windows import WINDOWS

    return itertools.starmap(Composition, itertools.product(SCORES, NORMALIZERS, WINDOWS))


def without_aliases(registry: Mapping[str, Part]) -> list[str]:
    """Return the names of a registry, of several for one thing the first."""
    first: dict[Part, str] = {}
    for name, member in registry.items():
        first.setdefault(member, name)
    return list(first.values())


def trainable(base: TrainConfig, compositions: Sequence[Composition]) -> list[Composition]:
    """Leave out the compositions that the other settings do not allow.

    Raises:
        UserError: they allow none.
    """
    from nmt.models.build import check_model

    found = []
    for composition in compositions:
        try:
            check_model(composed(base, composition).model, joint=base.tokenizer.joint)
            found.append(composition)
        except UserError as error:
            tell(f"left out {' x '.join(composition)}: {error}")
    if not found:
        raise UserError("no composition is left: change the overrides, or choose other scores, normalizers or windows")
    return found


def job_of(study: Study, base: TrainConfig, composition: Composition) -> Job:
    """Return the run of a composition."""
    return Job(composition, replace(composed(base, composition), run_dir=str(study.run_dir("-".join(composition)))))


def composed(base: TrainConfig, composition: Composition) -> TrainConfig:
    """Return the configuration with another attention."""
    attention = replace(base.model.attention, **composition._asdict())
    return replace(base, model=replace(base.model, attention=attention))


def warn(config: TrainConfig, runs: int, least: float) -> None:
    """Say so where the time is too short for the table to mean anything."""
    minutes = config.trainer.max_minutes
    if minutes is not None and minutes < least:
        tell(
            f"warning: {runs} runs have {minutes:.2f} minutes of training each, too few to learn: choose fewer with "
            "--scores, --normalizers, --windows, or give more --minutes"
        )


def figures(job: Job) -> dict[str, Any]:
    """Return the table's row of a composition, after training it."""

    def measure() -> dict[str, Any]:
        run = train_and_evaluate(job.config)
        scores = scores_of(run)
        return {
            **job.composition._asdict(),
            **{name: scores[name] for name in ("bleu", "aer", "attention_entropy")},
            "exact_zeros": share_of_zeros(run),
            **effort_of(run),
        }

    row: dict[str, Any] = remembered(job.file, measure)
    return row


def share_of_zeros(run: Path) -> float:
    """Return the share of the weights between real tokens that are exactly 0, on the validation split."""
    import torch

    from nmt.data.corpus import load_split
    from nmt.data.encoded import encode
    from nmt.data.loader import fixed_batches
    from nmt.models.checkpoint import load_checkpoint

    loaded = load_checkpoint(run)
    data = loaded.config.data
    corpus = load_split(data, "validation")
    encoded = encode(corpus, loaded.tokenizers, cache_dir=data.cache_dir, num_workers=data.num_workers)
    zeros = weights = 0
    with torch.inference_mode():
        for batch in fixed_batches(encoded, 4_096):
            real = batch.target_mask[:, :, None] & batch.source_mask[:, None]
            zeros += int((loaded.model(batch).weights[real] == 0).sum())
            weights += int(real.sum())
    return zeros / weights


def report(study: Study) -> None:
    """Write and print the table of the finished runs, and draw it."""
    rows = list(finished(study))
    if not rows:
        return
    write_table(rows, study.output / TABLE)
    draw(rows, study.output / PICTURE)
    print_table(rows, "attention: score x normalizer x window")
    print(f"table: {study.output / TABLE}   picture: {study.output / PICTURE}")


def finished(study: Study) -> Iterator[dict[str, Any]]:
    """Yield the rows of all finished runs of the output folder, in the order of the registries."""
    for composition in everything():
        file = study.run_dir("-".join(composition)) / FIGURES
        if file.is_file():
            yield remembered(file, dict)


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw BLEU above and alignment error rate below: a panel a window, a row a score, a column a normalizer."""
    from matplotlib.figure import Figure

    scores, normalizers, windows = (list(dict.fromkeys(row[part] for row in rows)) for part in Composition._fields)
    size = (2.2 + 0.9 * len(normalizers) * len(windows), 1.8 + 0.7 * len(scores))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(2, len(windows), squeeze=False, sharex=True, sharey=True)
    values = {tuple(row[part] for part in Composition._fields): row for row in rows}
    for line, (metric, label, colors, form) in enumerate(
        (("bleu", "BLEU", "Blues", ".1f"), ("aer", "AER", "Blues_r", ".2f"))
    ):
        known = [value for row in rows if not math.isnan(value := number(row, metric))]
        lowest, highest = min(known, default=0.0), max(known, default=1.0)
        for axes, window in zip(panels[line], windows, strict=True):
            axes.set_title(f"{label}, {window}", fontsize=9)
            axes.set_xticks(range(len(normalizers)), normalizers, fontsize=8)
            axes.set_yticks(range(len(scores)), scores, fontsize=8)
            cells = [[number(values.get((s, n, window)), metric) for n in normalizers] for s in scores]
            axes.imshow(cells, cmap=colors, vmin=lowest, vmax=highest, aspect="auto")
            annotate(axes, cells, form, middle=(lowest + highest) / 2, dark_above=metric == "bleu")
    figure.savefig(path, dpi=120)


def number(row: Mapping[str, Any] | None, metric: str) -> float:
    """Return a figure of a row, NaN where there is none."""
    return math.nan if row is None or row[metric] is None else float(row[metric])


def annotate(axes: Any, cells: Sequence[Sequence[float]], form: str, *, middle: float, dark_above: bool) -> None:
    """Write each figure into its cell, in white where the cell is dark."""
    for y, line in enumerate(cells):
        for x, value in enumerate(line):
            if not math.isnan(value):
                dark = (value > middle) == dark_above
                axes.text(
                    x, y, f"{value:{form}}", ha="center", va="center", fontsize=8, color="white" if dark else "black"
                )


if __name__ == "__main__":
    main()
