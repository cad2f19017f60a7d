"""How many files a reader opens to follow one batch of text to its loss, as it is written: counted by its calls."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from nmt.config.schema import BatchConfig, DataConfig, ModelConfig, SplitConfig, TokenizerConfig, TrainerConfig
from nmt.data.batch import Batch, TrainLoader
from nmt.data.corpus import clean, load_split
from nmt.data.tables import encode
from nmt.models.build import build_model
from nmt.text.tokenizer import Tokenizers, build_tokenizers
from nmt.training.objective import StepLoss, TrainingStep, token_loss
from nmt.training.reinforce import Reinforce
from tests.runs import ROOT

PACKAGE = ROOT / "nmt"


def files_called(function: Callable[[], Any]) -> tuple[Any, set[str]]:
    """Return a function's result, and the files of nmt whose functions ran."""
    seen: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(PACKAGE):
            seen.add(str(file.relative_to(PACKAGE)))

    sys.setprofile(note)
    try:
        return function(), seen
    finally:
        sys.setprofile(None)


def test_a_reader_opens_few_files(tmp_path: Path) -> None:
    """At most 14 from a line of text to the loss, at most 9 of them from the batch on; none of the fast path."""
    for side, words in (("source", "a b c d"), ("target", "e f g h")):
        (tmp_path / side).write_text("".join(f"{words} {words[: 1 + n % 7]}\n" for n in range(40)), encoding="utf-8")
    split = SplitConfig(source=[str(tmp_path / "source")], target=[str(tmp_path / "target")])
    config = DataConfig(kind="text", train=split, cache_dir=str(tmp_path / "cache"))
    corpus = load_split(config, "train")
    tokenizers = build_tokenizers(list(corpus["source"]), list(corpus["target"]), TokenizerConfig(vocab_size=300))

    def batch_of_text() -> Batch:
        corpus, _ = clean(load_split(config, "train"), config.cleaning)
        encoded = encode(corpus, tokenizers, cache_dir=config.cache_dir, num_workers=1)
        return next(iter(TrainLoader(encoded, tokenizers, BatchConfig(unit="sentences", size=8), seed=1)))

    batch, before = files_called(batch_of_text)
    step = training_step(tokenizers)
    loss, after = files_called(lambda: step(batch, 0.0))
    assert isinstance(loss, StepLoss)
    assert torch.isfinite(loss.objective)
    assert len(after) <= 9, sorted(after)
    assert len(before | after) <= 14, sorted(before | after)
    assert not any(file.startswith("fast") for file in before | after)


def training_step(tokenizers: Tokenizers) -> TrainingStep:
    model = ModelConfig(embedding_size=8, hidden_size=8)
    vocabularies = len(tokenizers.source), len(tokenizers.target)
    trainer = TrainerConfig()
    built = build_model(model, *vocabularies, joint=True)
    return TrainingStep(built, token_loss, Reinforce(trainer.reinforce), trainer)
