"""The speed of training by sentence length and batch size: is the cost linear in the number of tokens?"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarking.training import repeat_updates, speed
from benchmarking.workload import random_sentences, start_training
from nmt.config.schema import BatchConfig, TrainConfig

FIGURES = ("target_tokens_per_second", "spread", "milliseconds_per_update")


def measure_scaling(
    config: TrainConfig, *, lengths: Sequence[int], batches: Sequence[int], updates: int, repeats: int
) -> Iterator[dict[str, Any]]:
    """Yield a row with FIGURES for each length and batch size, measured on random sentences without padding.

    Both sides of every pair have `length` tokens with the end mark; a batch has `sentences` pairs.
    """
    for length in lengths:
        for sentences in batches:
            prepared = random_sentences(config.tokenizer.vocab_size, sentences=sentences * updates, length=length)
            batch = BatchConfig(unit="sentences", size=sentences, max_length=length)
            trainer = start_training(replace(config, batch=batch), prepared)
            figures = speed(repeat_updates(trainer, updates=updates, repeats=repeats))
            yield {"length": length, "sentences": sentences, **{name: figures[name] for name in FIGURES}}


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw tokens/s against length, a line for each batch size; a horizontal line means linear cost."""
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
