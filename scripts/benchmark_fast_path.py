"""The speed of the fast path: model.fast=auto against off, by decoder, cell and score.

    python scripts/benchmark_fast_path.py [key=value ...] [--quick] [--decoders NAME ...] [--cells NAME ...]
                                          [--scores NAME ...] [--rounds N] [--updates N] [--sentences N] [--output F]

For each composition two models, which differ in model.fast alone, take turns: in every round both are trained on the
same batches. Then both translate the same sentences of the test split, with the same weights, by beam search. Each
round begins with the other model; one round before the first warms up.

Overrides are those of `python -m nmt.train`, for all models; without any, the models are those of its default and the
corpus is the built-in one. The file holds a row for each round, training in target tokens/s and search in sentences/s;
the printed table holds medians over the rounds, and their ratio, auto over off. `fixed_context` does not attend, so it
has no score. On other text, here segmented already:

    python scripts/benchmark_fast_path.py experiment=benchmark data.{train,test}.source=F data.{train,test}.target=F
"""

import argparse
import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from nmt.cli import user_errors
from nmt.config.schema import TrainConfig
from nmt.errors import UserError
from studies.options import configured, positive, use_threads
from studies.study import log
from studies.tables import print_table, write_rows

DECODERS = {
    "bahdanau": ("model=bahdanau",),
    "luong": ("model=luong",),
    "luong_without_feeding": ("model=luong", "model.input_feeding=false"),
    "conditional": ("model=conditional",),
    "gnmt": ("model=gnmt",),
    "fixed_context": ("model=fixed_context",),
}
CELLS, SCORES, NO_SCORE = ("gru", "lstm"), ("additive", "general"), "-"
VARIED = ("model", "model.decoder", "model.input_feeding", "model.cell", "model.attention.score", "model.fast")
QUICK = (
    *("model.embedding_size=16", "model.hidden_size=32", "model.dropout=0", "batch.size=200"),
    *("data.grammar.train_size=300", "data.grammar.test_size=20", "data.grammar.max_length=8"),
    *("data.grammar.long_length=6", "tokenizer.vocab_size=600"),
)


class Size(NamedTuple):
    """An option of the measurement, and its defaults."""

    full: int
    quick: int
    help: str


SIZES = {
    "rounds": Size(5, 2, "measurements of each model, after one to warm up"),
    "updates": Size(10, 2, "updates in a round"),
    "sentences": Size(100, 4, "sentences translated in a round"),
}


class ModelComposition(NamedTuple):
    """The parts of a model that vary; these columns name a row of the table."""

    decoder: str
    cell: str
    score: str

    def configure(self, fast: str, overrides: Sequence[str]) -> TrainConfig:
        """Return the configuration of a model; raise UserError if an override does not fit."""
        varied = [*DECODERS[self.decoder], f"model.cell={self.cell}", f"model.fast={fast}"]
        varied += [] if self.score == NO_SCORE else [f"model.attention.score={self.score}"]
        return configured([*overrides, *varied])


def main() -> None:
    """Measure the selected compositions; write all rounds, and print the medians."""
    options = build_parser().parse_intermixed_args()
    with user_errors():
        for override in options.overrides:
            if (name := override.partition("=")[0].lstrip("+~")) in VARIED:
                raise UserError(f"{override}: {name} varies in the table; choose by --decoders, --cells and --scores")
        file = options.output or Path(f"outputs/benchmark/fast_path{'_quick' if options.quick else ''}.csv")
        rows = list(write_rows(measure_all(options), file))
    print_table(list(summarize(rows)), "training in target tokens/s, search in sentences/s")
    print(f"all rounds: {file}")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="of the training configuration, for all")
    for name, choices in (("decoders", tuple(DECODERS)), ("cells", CELLS), ("scores", SCORES)):
        text = f"only these (give key=value before) of {', '.join(choices)}"
        parser.add_argument(f"--{name}", nargs="+", choices=choices, default=choices, metavar="NAME", help=text)
    for name, size in SIZES.items():
        text = f"{size.help} (default: {size.full}, with --quick {size.quick})"
        parser.add_argument(f"--{name}", type=positive, metavar="N", help=text)
    file = "outputs/benchmark/fast_path.csv"
    parser.add_argument("--output", type=Path, metavar="F", help=f"default: {file}, with --quick fast_path_quick.csv")
    parser.add_argument("--quick", action="store_true", help="tiny models and two rounds, to try the script")
    return parser


def measure_all(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row for each composition and round."""
    from benchmarking.fast_path import PATHS, measure_fast_path
    from benchmarking.workload import prepare_training
    from nmt.data.corpus import load_split

    compositions = select(options.decoders, options.cells, options.scores)
    overrides = [*(QUICK if options.quick else ()), *options.overrides]
    configs = [{fast: composition.configure(fast, overrides) for fast in PATHS} for composition in compositions]
    config = configs[0]["auto"]
    use_threads(config.threads)
    kind = "quick" if options.quick else "full"
    sizes = {name: getattr(options, name) or getattr(size, kind) for name, size in SIZES.items()}
    sentences = list(load_split(config.data, "test")["source"])[: sizes.pop("sentences")]
    prepared = prepare_training(config)
    for number, (composition, by_path) in enumerate(zip(compositions, configs, strict=True), start=1):
        log(f"{number} of {len(compositions)}: {' '.join(composition)}")
        rates = measure_fast_path(by_path, prepared, sentences, **sizes)
        yield from ({**composition._asdict(), "round": count, **row} for count, row in enumerate(rates, start=1))


def select(decoders: Iterable[str], cells: Iterable[str], scores: Iterable[str]) -> list[ModelComposition]:
    """Return the compositions of these names; a decoder that does not attend has no score."""
    compositions = itertools.starmap(ModelComposition, itertools.product(decoders, cells, scores))
    existing = (each._replace(score=NO_SCORE) if each.decoder == "fixed_context" else each for each in compositions)
    return list(dict.fromkeys(existing))


def summarize(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield for each composition the medians over its rounds, and the ratios auto over off."""
    for composition, group in itertools.groupby(rows, itemgetter(*ModelComposition._fields)):
        rounds = list(group)
        summary: dict[str, Any] = ModelComposition(*composition)._asdict()
        for work in ("training", "search"):
            auto, off = (statistics.median(row[f"{work}_{fast}"] for row in rounds) for fast in ("auto", "off"))
            summary |= {f"{work}_auto": auto, f"{work}_off": off, f"{work}_ratio": auto / off}
        yield summary


if __name__ == "__main__":
    main()
