"""A trainer of a toy: copying a few letters."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from rich.console import Console

from nmt.config.schema import (
    BatchConfig,
    OptimizerConfig,
    ScheduleConfig,
    TokenizerConfig,
    TrainConfig,
    TrainerConfig,
)
from nmt.data.batch import TrainLoader
from nmt.data.tables import EncodedCorpus, Ragged
from nmt.models.seq2seq import Seq2Seq
from nmt.text.tokenizer import Tokenizers, build_tokenizers
from nmt.training.optimizer import Schedule, build_optimizer
from nmt.training.reporting import Reporter
from nmt.training.trainer import Trainer
from tests.training.toy import CPU, VOCAB, Make, Saved, toy


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    """Required by the loader, but not used: the toy has no subwords."""
    lines = ["some words", "other words"]
    return build_tokenizers(lines, lines, TokenizerConfig(vocab_size=320))


@pytest.fixture(scope="module")
def letters() -> EncodedCorpus:
    """Sentences that are their own translations."""
    generator = np.random.default_rng(0)
    sides = Ragged.of([generator.integers(4, VOCAB, generator.integers(2, 6)).tolist() for _ in range(256)])
    return EncodedCorpus(datasets.Dataset.from_dict({"source": [""] * 256, "target": [""] * 256}), sides, sides)


@pytest.fixture
def make(letters: EncodedCorpus, tokenizers: Tokenizers, tmp_path: Path) -> Iterator[Make]:
    reporters = []

    def build(
        metrics: list[float],
        *,
        model: Seq2Seq | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        schedule: ScheduleConfig | None = None,
        **changes: Any,
    ) -> tuple[Trainer, Saved]:
        config = TrainerConfig(**{"device": "cpu", "log_every": 10, "label_smoothing": 0.0, **changes})
        model = model or toy()
        optimizer = optimizer or build_optimizer(model, OptimizerConfig(learning_rate=0.01))
        reporter = Reporter(tmp_path, config=TrainConfig(), console=Console(file=io.StringIO()))
        reporter.__enter__()
        reporter.start("a toy")
        reporters.append(reporter)
        saved = Saved(metrics)
        trainer = Trainer(
            model,
            TrainLoader(letters, tokenizers, BatchConfig(unit="sentences", size=32), seed=1),
            optimizer,
            Schedule(optimizer, schedule or ScheduleConfig(kind="constant", warmup_steps=0), 0.01),
            config,
            OptimizerConfig().clip_norm,
            device=CPU,
            validate=saved.validate,
            save=saved.save,
            reporter=reporter,
        )
        return trainer, saved

    yield build
    for reporter in reversed(reporters):
        reporter.__exit__(None, None, None)
