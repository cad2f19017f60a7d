"""Defaults for sizes and rates that are not set, by the number of training pairs and the time: the table below.

The guide explains it (docs/guide.md, "Sizes that are not given"); a test keeps the two tables the same.
"""

import logging
import math
from typing import Any, NamedTuple

import datasets

from nmt.config.automatic import set_keys
from nmt.config.schema import TokenizerConfig, TrainConfig, TrainerConfig
from nmt.data.tables import SIDES, lines_of
from nmt.text.round_trip import many_changed_lines, sample_lines
from nmt.text.sentencepiece_model import SPACES, normalize
from nmt.training.progress import validates_by_time
from nmt.training.resuming import format_value

logger = logging.getLogger(__name__)


class DefaultsRow(NamedTuple):
    """Values for at least `pairs` training pairs and at least `minutes` minutes of training."""

    pairs: int
    minutes: float
    vocab_size: int
    embedding_size: int
    hidden_size: int
    batch_size: int  # target tokens
    learning_rate: float
    warmup_steps: int


TABLE = (
    DefaultsRow(0, 0, 1_000, 64, 128, 250, 5e-3, 50),
    DefaultsRow(0, 3, 2_000, 128, 256, 500, 3e-3, 100),
    DefaultsRow(10_000, 0, 4_000, 128, 256, 500, 3e-3, 100),
    DefaultsRow(10_000, 40, 8_000, 256, 512, 2_000, 2e-3, 200),
    DefaultsRow(300_000, 480, 16_000, 512, 1_024, 4_096, 1e-3, 500),
)
DROPOUT = {0: 0.1, 10: 0.2, 30: 0.3}  # by how often the text is read, at least
PAIRS_PER_MINUTE = 20_000  # the second row on two cores, sentences of 14 tokens: 290 to 410 pairs/s
UPDATES_PER_MINUTE = 500
GPU_FACTOR = 20  # a minute on a GPU counts as so many
TOKENS_PER_SENTENCE = 20
VALIDATIONS_PER_RUN = 8
COUNTED_PAIRS = 100_000


def choose_automatic_values(config: TrainConfig, train: datasets.Dataset, *, on_gpu: bool) -> None:
    """Set the keys of `config.automatic`, in place, for a training text, log them, and empty the list."""
    if not config.automatic:
        return
    minutes = time_to_train(config.trainer, len(train), on_gpu=on_gpu)
    is_lossy = "tokenizer.normalization" in config.automatic and loses_characters(config.tokenizer, train)
    values = automatic_values(
        config, len(train), minutes, num_characters=count_characters(train), loses_characters=is_lossy
    )
    values = {name: value for name, value in values.items() if name in config.automatic and value is not None}
    set_keys(config, {**values, "automatic": []})
    overrides = " ".join(f"{name}={format_value(value)}" for name, value in values.items())
    if overrides:
        logger.info(
            "not given, so chosen for %s pairs in %.3g minutes on two cores (see the guide): %s",
            f"{len(train):,}",
            minutes,
            overrides,
        )


def count_characters(corpus: datasets.Dataset) -> int:
    """Return the number of distinct characters of both sides, in a sample of a large corpus."""
    sample = corpus.select(range(0, len(corpus), 1 + len(corpus) // COUNTED_PAIRS))
    return len(set().union(*(line for side in SIDES for line in lines_of(sample, side))))


def loses_characters(config: TokenizerConfig, corpus: datasets.Dataset) -> bool:
    """Return whether the usual normalization would change many target lines, which no translation then equals.

    It makes wide punctuation of Chinese and Japanese narrow, takes a vowel sign of Thai apart, and so on.
    """
    lines = sample_lines(corpus)
    return bool(many_changed_lines(lines, normalize(lines, config.normalization)))


def time_to_train(config: TrainerConfig, pairs: int, *, on_gpu: bool) -> float:
    """Convert the tightest limit to minutes of training on two cores; infinity if there is no limit.

    Updates and passes over the corpus count as the time that the small model takes for them.
    """
    limits = (
        math.inf if config.max_minutes is None else config.max_minutes * (GPU_FACTOR if on_gpu else 1),
        math.inf if config.max_epochs is None else config.max_epochs * pairs / PAIRS_PER_MINUTE,
        math.inf if config.max_steps is None else config.max_steps / UPDATES_PER_MINUTE,
    )
    return min(limits)


def automatic_values(
    config: TrainConfig, pairs: int, minutes: float, *, num_characters: int, loses_characters: bool = False
) -> dict[str, Any]:
    """Return a value for every automatic key; None leaves the default of the schema.

    The arguments are what `time_to_train`, `count_characters` and `loses_characters` return, for so many pairs. Of
    `config` matter the unit of batches, the kind of segmentation, limits and validations.
    """
    row = [row for row in TABLE if pairs >= row.pairs and minutes >= row.minutes][-1]
    tokenizer, trainer, num_readings = config.tokenizer, config.trainer, minutes * PAIRS_PER_MINUTE / pairs
    is_segmented, is_by_tokens = tokenizer.kind == "whitespace", config.batch.unit == "tokens"
    is_learned = not (is_segmented or tokenizer.source_model or tokenizer.target_model)
    between = (trainer.max_minutes or 0.0) / VALIDATIONS_PER_RUN  # validations, in minutes
    return {
        # Segmented text has its own pieces; writing systems with many characters need more than the row has.
        "tokenizer.vocab_size": None if is_segmented else max(row.vocab_size, 300 + 2 * num_characters),
        "tokenizer.normalization": SPACES if loses_characters and is_learned else None,
        "batch.size": row.batch_size if is_by_tokens else row.batch_size // TOKENS_PER_SENTENCE,
        "model.embedding_size": row.embedding_size,
        "model.hidden_size": row.hidden_size,
        "model.tied_embeddings": "target",
        "model.dropout": next(rate for least, rate in reversed(DROPOUT.items()) if num_readings >= least),
        "optimizer.learning_rate": row.learning_rate,
        "schedule.warmup_steps": min(row.warmup_steps, (trainer.max_steps or 10**9) // 10),
        "trainer.validate_every_minutes": float(f"{between:.3g}") if validates_by_time(trainer) else None,
    }
