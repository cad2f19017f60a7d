"""Names and settings as TensorBoard shows them; what it shows of a run is tested with the reporter."""

import json

import pytest

from nmt.config.schema import ModelConfig, OptimizerConfig, TrainConfig, TrainerConfig
from nmt.training.tensorboard import hyperparameters, tag_of


def test_the_name_of_a_picture_is_short() -> None:
    assert tag_of(3, "a b") == "alignment/3: “a b”"
    assert len(tag_of(0, "word " * 100)) < 100


@pytest.mark.parametrize("source", ['He said "no".', "a\\b", "tab\there", "猫在 сад"])
def test_tensorboard_can_find_a_picture_by_its_name(source: str) -> None:
    """Its data server reads names out of JSON, and fails where they are escaped in it."""
    name = tag_of(0, source)
    assert json.dumps(name, ensure_ascii=False) == f'"{name}"'


def test_hyperparameters_are_numbers_and_strings() -> None:
    assert hyperparameters(TrainConfig()) == {"data.kind": "grammar"}
    config = TrainConfig(
        run_dir="x",
        threads=2,
        model=ModelConfig(input_feeding=False, dropout=0.3),
        optimizer=OptimizerConfig(betas=[0.8, 0.9]),
        trainer=TrainerConfig(save_every_minutes=None, max_steps=7),
    )
    found = hyperparameters(config)
    assert found["model.input_feeding"] == "False"
    assert found["optimizer.betas"] == "[0.8, 0.9]"
    assert (found["model.dropout"], found["trainer.max_steps"]) == (0.3, 7)
    assert found["trainer.save_every_minutes"] == "null"
    assert found.keys() - {"model.input_feeding", "optimizer.betas", "model.dropout", "trainer.max_steps"} == {
        "data.kind",
        "trainer.save_every_minutes",
    }
