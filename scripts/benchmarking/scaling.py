"""The speed of training by sentence length and batch size: does the cost grow with the tokens, and no faster?"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarking.training import repeat_updates, speed
from benchmarking.workload import random_sentences, start_training
from nmt.config.schema import BatchConfig, TrainConfig

COLUMNS = ("length", "sentences", "target_tokens_per_second", "spread", "milliseconds_per_update")


def measure_scaling(
    config: TrainConfig, *, lengths: Sequence[int], batches: Sequence[int], updates: int, repeats: int
) -> Iterator[dict[str, Any]]:
    """Yield a row of COLUMNS for each length and batch size, measured on random sentences without padding.

    Both sides of every pair have `length` tokens, end marks in; a batch has `sentences` pairs.
    """
    for length in lengths:
        for sentences in batches:
            prepared = random_sentences(config.tokenizer.vocab_size, sentences=sentences * updates, length=length)
            batch = BatchConfig(unit="sentences", size=sentences, max_length=length)
            trainer = start_training(replace(config, batch=batch), prepared)
            figures = speed(repeat_updates(trainer, updates=updates, repeats=repeats))
            yield {"length": length, "sentences": sentences, **{name: figures[name] for name in COLUMNS[2:]}}


def write_rows(rows: Iterable[dict[str, Any]], path: Path) -> Iterator[dict[str, Any]]:
    """Write rows to a CSV file as they come, and hand them on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for row in rows:
            writer.writerow({name: f"{value:.6g}" for name, value in row.items()})
            file.flush()
            yield row


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw tokens a second against length, a line for each batch size; level lines are linear cost."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for sentences in sorted({row["sentences"] for row in rows}):
        line = [row for row in rows if row["sentences"] == sentences]
        speeds = [row["target_tokens_per_second"] for row in line]
        axes.plot([row["length"] for row in line], speeds, marker="o", label=f"{sentences} sentences")
    lengths = sorted({row["length"] for row in rows})
    axes.set(xlabel="tokens of a sentence, source and target", ylabel="target tokens/s", xscale="log", ylim=(0, None))
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.minorticks_off()
    axes.legend(title="batch")
    figure.savefig(path, dpi=150)
