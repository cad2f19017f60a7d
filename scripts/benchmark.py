"""The speed and memory of training and translation, through the trainer and translator that users run.

    python scripts/benchmark.py train [key=value ...]          updates of a training run
    python scripts/benchmark.py translate [key=value ...]      translation of the test split
    python scripts/benchmark.py scaling [key=value ...]        training speed by sentence length and batch size
    python scripts/benchmark.py data [key=value ...]           from text to batches, step by step, and its memory
    python scripts/benchmark.py startup [--checkpoint RUN]     help, imports, and the first translation

Overrides are those of `python -m nmt.train`. On parallel text that is segmented already, with the model and batches
that other toolkits were measured with: experiment=benchmark data.train.source=F data.train.target=F.
"""

import argparse
import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nmt.cli import user_errors
from nmt.config.schema import PRECISIONS, TrainConfig
from nmt.errors import UserError, write_errors
from nmt.translate import replace_together
from studies.options import configured, positive, use_threads


def main() -> None:
    """Measure in the mode that the command line names."""
    options = build_parser().parse_intermixed_args()
    with user_errors():
        overrides = [*options.overrides, *implied(options)]
        if options.checkpoint is not None and options.mode not in ("translate", "startup"):
            raise UserError("--checkpoint belongs to translate and startup: the others start from random weights")
        if options.precision != "fp32" and options.mode != "translate":
            raise UserError("--precision belongs to translate: for training, give trainer.precision=bf16")
        if options.json is not None:
            with write_errors(options.json):
                options.json.parent.mkdir(parents=True, exist_ok=True)  # before the work
        config = configured(overrides, options.checkpoint)
        use_threads(config.threads)
        modes = {"train": train, "translate": translate, "scaling": scaling, "data": data, "startup": startup}
        figures = modes[options.mode](config, options)
        if options.json is not None:
            command = shlex.join(["python", *sys.argv])
            figures = {"command": command, "mode": options.mode, "model": asdict(config.model), **figures}
            with write_errors(options.json), replace_together(options.json) as (file,):
                file.write(json.dumps(figures, indent=1) + "\n")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("train", "translate", "scaling", "data", "startup"))
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="of the training configuration")
    parser.add_argument("--repeats", type=positive, default=5, help="measurements, after one to warm up")
    parser.add_argument("--updates", type=positive, help="updates in a repeat (default: train 20, scaling 1)")
    parser.add_argument("--threads", type=positive, help="CPU threads: threads=N")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), help="trainer.device=D")
    parser.add_argument("--reference", action="store_true", help="the readable reference path: model.fast=off")
    parser.add_argument("--profile", action="store_true", help="also print the time by phase and operator")
    parser.add_argument("--json", type=Path, metavar="F", help="write the figures to a file")
    group = parser.add_argument_group("translate")
    group.add_argument(
        "--checkpoint", metavar="RUN", help="run or checkpoint: its keys, and overrides of them (no groups)"
    )
    group.add_argument("--precision", choices=PRECISIONS, default="fp32", help="as in nmt.translate")
    group = parser.add_argument_group("scaling")
    group.add_argument("--lengths", type=positive, nargs="+", default=[25, 50, 100, 200], metavar="N")
    group.add_argument("--batches", type=positive, nargs="+", default=[16, 32, 64, 128, 256], metavar="N")
    group.add_argument(
        "--output", type=Path, default=Path("outputs/benchmark"), help="folder of the table and the plot"
    )
    return parser


def implied(options: argparse.Namespace) -> list[str]:
    """Return the overrides that the options stand for."""
    overrides = [] if options.threads is None else [f"threads={options.threads}"]
    overrides += [] if options.device is None else [f"trainer.device={options.device}"]
    return overrides + (["model.fast=off"] if options.reference else [])


def train(config: TrainConfig, options: argparse.Namespace) -> dict[str, Any]:
    """Measure training."""
    from benchmarking.profiling import operators, phase_table, training_phases
    from benchmarking.training import measure_training, timed_updates
    from benchmarking.workload import prepare_training, start_training

    updates = options.updates or 20
    trainer = start_training(config, prepare_training(config))
    figures = measure_training(config, trainer, updates=updates, repeats=options.repeats)
    show(figures)
    if options.profile:
        figures["phases"] = training_phases(trainer, updates=updates)
        print(f"\n{updates} updates by phase\n{phase_table(figures['phases'])}\n")
        print(operators(trainer.device, lambda: next(timed_updates(trainer, updates))))
    return figures


def translate(config: TrainConfig, options: argparse.Namespace) -> dict[str, Any]:
    """Measure translation of the test split, by a trained model or by one of random weights."""
    from benchmarking.profiling import operators, phase_table, translation_phases
    from benchmarking.translation import measure_translation
    from benchmarking.workload import start_translating
    from nmt.data.corpus import load_split
    from nmt.evaluation.metrics import bleu, bleu_tokenizer

    metric = bleu(bleu_tokenizer(config), config.lowercase)
    corpus = load_split(config.data, "test")
    sources, references = list(corpus["source"]), list(corpus["target"])
    translator = start_translating(config, options.checkpoint, options.precision)
    figures = measure_translation(translator, sources, references, metric=metric, repeats=options.repeats)
    show(figures)
    if options.checkpoint is None:
        print("random weights: only the speed means something; --checkpoint RUN translates with a trained model")
    if options.profile:
        figures["phases"] = translation_phases(translator, sources)
        print(f"\n{len(sources)} sentences by phase\n{phase_table(figures['phases'])}\n")
        print(operators(translator.device, lambda: translator.translate(sources)))
    return figures


def scaling(config: TrainConfig, options: argparse.Namespace) -> dict[str, Any]:
    """Measure training by length and batch size; write a table and a plot."""
    from benchmarking.machine import describe
    from benchmarking.scaling import draw, measure_scaling
    from nmt.models.checkpoint import resolve_device
    from studies.tables import write_rows

    sizes = {"lengths": sorted(options.lengths), "batches": sorted(options.batches)}
    measured = measure_scaling(config, **sizes, updates=options.updates or 1, repeats=options.repeats)
    print("length  sentences  target tokens/s  spread  ms/update")
    rows = []
    for row in write_rows(measured, options.output / "scaling.csv"):
        print("{:6}  {:9}  {:15.0f}  {:6.1%}  {:9.1f}".format(*row.values()), flush=True)
        rows.append(row)
    draw(rows, options.output / "scaling.png")
    print(f"table: {options.output / 'scaling.csv'}   plot: {options.output / 'scaling.png'}")
    return {"rows": rows, **describe(resolve_device(config.trainer.device))}


def data(config: TrainConfig, options: argparse.Namespace) -> dict[str, Any]:
    """Measure each step from text to batches."""
    from benchmarking.data import measure_data

    print(f"{'step':<20}{'pairs':>12}{'seconds':>10}{'CPU s':>10}{'pairs/s':>12}{'MiB':>8}", flush=True)
    rows = []
    for row in measure_data(config):
        memory = "" if row["peak_mib"] is None else f"{row['peak_mib']:.0f}"
        figures = "{pairs:>12,}{seconds:>10.1f}{cpu_seconds:>10.1f}{pairs_per_second:>12,.0f}".format(**row)
        print(f"{row['step']:<20}{figures}{memory:>8}", flush=True)
        rows.append(row)
    return {"rows": rows}


def startup(config: TrainConfig, options: argparse.Namespace) -> dict[str, Any]:
    """Measure how long commands take to start."""
    from benchmarking.startup import measure_startup

    rows = []
    for row in measure_startup(options.checkpoint, options.repeats):
        print("{command:<24}{seconds:>8.2f} s  ({least:.2f} to {most:.2f})".format(**row), flush=True)
        rows.append(row)
    return {"rows": rows}


def show(figures: dict[str, Any]) -> None:
    """Print figures, one per line."""
    for name, value in figures.items():
        if not isinstance(value, dict | list):
            print(f"{name:<34}{value:.4g}" if isinstance(value, float) else f"{name:<34}{value}")


if __name__ == "__main__":
    main()
