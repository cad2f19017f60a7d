"""Checks of a configuration before any data is read."""

import os
from pathlib import Path

import pytest

from nmt.config.schema import AttentionConfig, DataConfig, ModelConfig, SplitConfig, TrainConfig, TrainerConfig
from nmt.errors import UserError
from nmt.training.prepare import check_files, check_run

TEXT = SplitConfig(source="a", target="b")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (TrainConfig(), "training has no end: set trainer.max_steps, trainer.max_epochs or trainer.max_minutes"),
        (
            TrainConfig(trainer=TrainerConfig(max_steps=1), data=DataConfig(kind="text", train=TEXT)),
            "no validation text: set data.validation.source and data.validation.target",
        ),
        (
            TrainConfig(
                trainer=TrainerConfig(max_steps=1, metric="aer"),
                data=DataConfig(kind="text", train=TEXT, validation=TEXT),
            ),
            "trainer.metric=aer needs gold alignments of the validation text: set data.validation.alignment",
        ),
        (TrainConfig(model=ModelConfig(input_feeding=False)), "input_feeding=false means nothing to model=bahdanau"),
        (
            TrainConfig(trainer=TrainerConfig(max_steps=1, consistency=5.0), model=ModelConfig(dropout=0.0)),
            "trainer.consistency=5 needs dropout, which makes two passes differ, and all of it is off: set model.drop",
        ),
        (
            TrainConfig(
                trainer=TrainerConfig(max_steps=1, consistency=5.0),
                model=ModelConfig(attention=AttentionConfig(normalizer="hard")),
            ),
            "trainer.consistency=5 needs predictions that differ by dropout alone, and model.attention.normalizer=hard",
        ),
        (
            TrainConfig(trainer=TrainerConfig(max_steps=1), data=DataConfig(target_language="ja")),
            "bleu_tokenize=ja-mecab is not available here",
        ),
    ],
)
def test_what_cannot_work_is_told_before_any_work(config: TrainConfig, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_run(config)


@pytest.mark.parametrize("kind", ["embedding_dropout", "state_dropout", "output_dropout", "word_dropout"])
def test_any_dropout_makes_two_passes_differ(kind: str) -> None:
    config = TrainConfig(trainer=TrainerConfig(max_steps=1, consistency=5.0), model=ModelConfig(dropout=0.0))
    setattr(config.model, kind, 0.1)
    check_run(config)


def test_a_pipe_has_one_reader(tmp_path: Path) -> None:
    """Rank 0 would read it, and the others wait for ever for what comes out of it next."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "text").touch()
    text = SplitConfig(source=str(tmp_path / "text"), target=str(tmp_path / "pipe"))
    config = TrainConfig(data=DataConfig(kind="text", train=text))
    check_files(config, 1)
    with pytest.raises(UserError, match=r"data.train.target: .*/pipe is a pipe, which one process alone can read"):
        check_files(config, 2)
