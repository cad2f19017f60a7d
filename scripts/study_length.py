"""Does quality last with the length of the sentence? A fixed vector against attention.

The bottleneck curve of Bahdanau et al. (2015, Figure 2): BLEU by the number of source words, for a decoder that is told
of the source by one vector alone (`fixed_context`), for additive attention over all of it, and for additive attention
within the window of local-p (Luong et al., 2015). Each is trained for an equal share of the time on the built-in
corpus, 3 to 60 words, and scored (greedy) on its test split and on the split of 40 to 60 words, both together.

`kept` is the BLEU of sentences of 40 words or more over that of sentences of up to 20. With `--quick` a small model
learns sentences of up to 24 words, and those of 20 or more are compared with those of up to 10.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from nmt.cli import user_errors
from nmt.config.schema import TrainConfig
from nmt.errors import unknown
from studies.study import (
    PICTURE,
    SMALL,
    TABLE,
    Study,
    build_parser,
    check_settings,
    effort_of,
    print_table,
    remembered,
    tell,
    train_and_evaluate,
    write_table,
)

FIGURES = "figures.json"  # in the folder of a run that is finished
SPLITS = ("test", "test_long")
MODELS = {
    "fixed_context": ("model=fixed_context",),
    "additive": ("model=bahdanau",),
    "local_p": ("model=bahdanau", "model.attention.window=local_p"),
}


class Setting(NamedTuple):
    """What is trained, the minutes that a run takes beside training, and how many words are few and many."""

    overrides: Sequence[str]
    overhead: float
    few: int
    many: int


# All of the time is used, however many epochs that makes.
FULL = Setting(("trainer.max_epochs=null",), overhead=0.5, few=20, many=40)
QUICK = Setting(
    (
        *SMALL,
        *("data.grammar.max_length=24", "data.grammar.long_length=15"),
        *("data.grammar.test_size=500", "data.grammar.long_size=200", "trainer.max_epochs=null"),
    ),
    overhead=0.2,
    few=10,
    many=20,
)


def main() -> None:
    """Train the models that the command line asks for, and draw BLEU against length."""
    parser = build_parser(__doc__ or "", minutes=20.0)
    parser.add_argument("--models", nargs="+", default=list(MODELS), metavar="NAME", help=f"of {', '.join(MODELS)}")
    options = parser.parse_intermixed_args()
    with user_errors():
        study = Study.of(options, "length")
        for name in options.models:
            if name not in MODELS:
                raise unknown("model", name, MODELS)
        setting = QUICK if options.quick else FULL
        limits = study.limits(len(options.models), overhead=setting.overhead)
        configs = {
            name: replace(study.configure(*MODELS[name], *setting.overrides, *limits), run_dir=str(study.run_dir(name)))
            for name in options.models
        }
        check_settings(configs.values(), shares_may_differ=True)
        found = {}
        for number, (name, config) in enumerate(configs.items(), start=1):
            tell(f"{number} of {len(configs)}: {name}")
            found[name] = figures(config, setting)
        report(study, found, setting)


def figures(config: TrainConfig, setting: Setting) -> dict[str, Any]:
    """Return what a model reached at each length, trained unless it is already."""
    run = Path(config.run_dir)

    def measure() -> dict[str, Any]:
        train_and_evaluate(config, splits=SPLITS)
        return {**by_length(run, config, setting), **effort_of(run)}

    found: dict[str, Any] = remembered(run / FIGURES, measure)
    return found


def by_length(run: Path, config: TrainConfig, setting: Setting) -> dict[str, Any]:
    """Return the BLEU of each length, and of short and long sentences, over both splits."""
    from nmt.data.corpus import load_split
    from nmt.evaluation.metrics import bleu_by_length, quick_scores

    triples: list[tuple[str, str, str]] = []
    for split in SPLITS:
        corpus = load_split(config.data, split)
        hypotheses = (run / "evaluation" / split / "hypotheses.txt").read_text(encoding="utf-8").split("\n")[:-1]
        triples += zip(corpus["source"], hypotheses, corpus["target"], strict=True)

    def bleu(shortest: int, longest: float) -> float | None:
        pairs = [each[1:] for each in triples if shortest <= len(each[0].split()) <= longest]
        return quick_scores(*zip(*pairs, strict=True))["bleu"] if pairs else None

    sources, translations, references = zip(*triples, strict=True)
    buckets = bleu_by_length(sources, translations, references)
    short, long = bleu(1, setting.few), bleu(setting.many, float("inf"))
    return {"buckets": buckets, "short_bleu": short, "long_bleu": long}


def report(study: Study, found: Mapping[str, Mapping[str, Any]], setting: Setting) -> None:
    """Write a row a model and length, draw them, and print a line a model."""
    effort = ("parameters", "updates", "minutes")
    rows = [
        {"model": name, **bucket, **{key: each[key] for key in effort}}
        for name, each in found.items()
        for bucket in each["buckets"]
    ]
    write_table(rows, study.output / TABLE)
    draw(found, study.output / PICTURE)
    print_table([summary(name, each, setting) for name, each in found.items()], "BLEU by words of the source sentence")
    print(f"table: {study.output / TABLE}   picture: {study.output / PICTURE}")


def summary(name: str, found: Mapping[str, Any], setting: Setting) -> dict[str, Any]:
    """Return the printed line of a model."""
    short, long = found["short_bleu"], found["long_bleu"]
    return {
        "model": name,
        **{span(bucket): bucket["bleu"] for bucket in found["buckets"]},
        f"to {setting.few}": short,
        f"from {setting.many}": long,
        "kept": long / short if short and long is not None else None,
        "minutes": found["minutes"],
    }


def span(bucket: Mapping[str, Any]) -> str:
    """Return the lengths of a bucket in words."""
    return f"{bucket['min_words']}-{bucket['max_words']}"


def draw(found: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw BLEU against length, a line a model."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, each in found.items():
        buckets: Sequence[Mapping[str, Any]] = each["buckets"]
        axes.plot([span(bucket) for bucket in buckets], [bucket["bleu"] for bucket in buckets], marker="o", label=name)
    axes.set(xlabel="words of the source sentence", ylabel="BLEU", ylim=(0, 101))
    axes.grid(axis="y", color="0.9")
    axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
