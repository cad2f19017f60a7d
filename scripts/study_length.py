"""Quality by sentence length: a fixed context vector against attention.

    python scripts/study_length.py [key=value ...] [--quick] [--models NAME ...] [--minutes M]

The bottleneck curve of Bahdanau et al. (2015, Figure 2): BLEU by the number of source words, for a decoder that sees
the source as one fixed vector (`fixed_context`), for additive attention over the whole source, and for additive
attention within the window of local-p (Luong et al., 2015). Each is trained for an equal share of the time on the
built-in corpus, 3 to 60 words, and evaluated (greedy) on its test split and on the split of 40 to 60 words together.

`kept` is the BLEU of sentences of 40 words or more over that of sentences of up to 20. With `--quick` a small model
is trained on sentences of up to 24 words, and those of 20 or more are compared with those of up to 10.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from nmt.cli import user_errors
from nmt.config.schema import TrainConfig
from nmt.errors import unknown
from studies.runs import cached, train_and_evaluate, training_cost
from studies.study import SMALL, Study, build_parser, check_settings, log, make_output_folder
from studies.tables import report

RESULT = "figures.json"  # in the folder of a finished run
SPLITS = ("test", "test_long")
MODELS = {
    "fixed_context": ("model=fixed_context",),
    "additive": ("model=bahdanau",),
    "local_p": ("model=bahdanau", "model.attention.window=local_p"),
}


class LengthSetting(NamedTuple):
    """The overrides of all runs, and the lengths that are compared."""

    overrides: Sequence[str]
    overhead: float  # minutes of a run besides training
    short: int  # words of a short sentence, at most
    long: int  # words of a long sentence, at least


# Time is the only limit.
FULL = LengthSetting(("trainer.max_epochs=null",), overhead=0.5, short=20, long=40)
QUICK = LengthSetting(
    (
        *SMALL,
        *("data.grammar.max_length=24", "data.grammar.long_length=15"),
        *("data.grammar.test_size=500", "data.grammar.long_size=200", "trainer.max_epochs=null"),
    ),
    overhead=0.2,
    short=10,
    long=20,
)


def main() -> None:
    """Train the selected models, and draw BLEU against length."""
    parser = build_parser(__doc__ or "", minutes=20.0)
    parser.add_argument("--models", nargs="+", default=list(MODELS), metavar="NAME", help=f"of {', '.join(MODELS)}")
    options = parser.parse_intermixed_args()
    with user_errors():
        study = Study.from_options(options, "length", {"model": "--models"})
        models = list(dict.fromkeys(options.models))
        for name in models:
            if name not in MODELS:
                raise unknown("model", name, MODELS)
        setting = QUICK if options.quick else FULL
        limits = study.limits(len(models), overhead=setting.overhead)
        configs = {
            name: replace(study.configure(*MODELS[name], *setting.overrides, *limits), run_dir=str(study.run_dir(name)))
            for name in models
        }
        check_settings(configs.values(), limits_may_differ=True)
        make_output_folder(options, "length")
        results = {}
        for number, (name, config) in enumerate(configs.items(), start=1):
            log(f"{number} of {len(configs)}: {name}")
            results[name] = cached(Path(config.run_dir) / RESULT, partial(measure, config, setting))
        summary = [summarize(name, result, setting) for name, result in results.items()]
        title = "BLEU by words of the source sentence"
        report(rows_of(results), partial(draw, results), study.output, title=title, summary=summary)


def measure(config: TrainConfig, setting: LengthSetting) -> dict[str, Any]:
    """Train a model; return its BLEU by length and the cost of training."""
    run = train_and_evaluate(config, splits=SPLITS)
    return {**evaluate_by_length(run, config, setting), **training_cost(run)}


def evaluate_by_length(run: Path, config: TrainConfig, setting: LengthSetting) -> dict[str, Any]:
    """Return the BLEU of each bucket of lengths, and of short and of long sentences, over both splits."""
    from nmt.data.corpus import load_split
    from nmt.evaluation.metrics import bleu as bleu_metric
    from nmt.evaluation.metrics import bleu_by_length, corpus_score

    triples: list[tuple[str, str, str]] = []
    for split in SPLITS:
        corpus = load_split(config.data, split)
        hypotheses = (run / "evaluation" / split / "hypotheses.txt").read_text(encoding="utf-8").split("\n")[:-1]
        triples += zip(corpus["source"], hypotheses, corpus["target"], strict=True)

    def bleu(shortest: int, longest: float) -> float | None:
        pairs = [triple[1:] for triple in triples if shortest <= len(triple[0].split()) <= longest]
        return corpus_score(bleu_metric(), *zip(*pairs, strict=True)).value if pairs else None

    sources, translations, references = zip(*triples, strict=True)
    buckets = bleu_by_length(sources, translations, references)
    short, long = bleu(1, setting.short), bleu(setting.long, math.inf)
    return {"buckets": buckets, "short_bleu": short, "long_bleu": long}


def rows_of(results: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each model and bucket of lengths."""
    cost = ("parameters", "updates", "minutes")
    return [
        {"model": name, **bucket, **{key: result[key] for key in cost}}
        for name, result in results.items()
        for bucket in result["buckets"]
    ]


def summarize(name: str, result: Mapping[str, Any], setting: LengthSetting) -> dict[str, Any]:
    """Return the printed row of a model."""
    short, long = result["short_bleu"], result["long_bleu"]
    return {
        "model": name,
        **{span(bucket): bucket["bleu"] for bucket in result["buckets"]},
        f"to {setting.short}": short,
        f"from {setting.long}": long,
        "kept": long / short if short and long is not None else None,
        "minutes": result["minutes"],
    }


def span(bucket: Mapping[str, Any]) -> str:
    """Return the lengths of a bucket in words."""
    return f"{bucket['min_words']}-{bucket['max_words']}"


def draw(results: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw BLEU against length, a line for each model."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, result in results.items():
        buckets: Sequence[Mapping[str, Any]] = result["buckets"]
        axes.plot([span(bucket) for bucket in buckets], [bucket["bleu"] for bucket in buckets], marker="o", label=name)
    axes.set(xlabel="words of the source sentence", ylabel="BLEU", ylim=(0, 101))
    axes.grid(axis="y", color="0.9")
    axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
