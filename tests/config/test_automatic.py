"""Keys that may be left to the program: what was given is told from what is a default."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.automatic import AUTOMATIC, fill_defaults, set_keys, value_of, with_null_defaults
from nmt.config.schema import TrainConfig, keys
from nmt.errors import UserError
from tests.composing import FOLDER, compose

DEFAULTS = {name: value for name, _, value in keys(TrainConfig())}


def test_the_keys() -> None:
    assert {"tokenizer.vocab_size", "batch.size", "model.hidden_size", "optimizer.learning_rate"} <= set(AUTOMATIC)
    assert set(AUTOMATIC) < set(DEFAULTS)


def test_without_values_all_are_automatic_and_have_the_defaults_of_the_schema() -> None:
    config = compose("train", "data=text")
    assert tuple(config.automatic) == AUTOMATIC
    assert {name: value_of(config, name) for name in AUTOMATIC} == {name: DEFAULTS[name] for name in AUTOMATIC}


@given(names=st.sets(st.sampled_from(AUTOMATIC)))
def test_a_key_that_is_given_is_not_automatic_even_with_the_value_of_the_default(names: set[str]) -> None:
    composed = with_null_defaults(TrainConfig)()
    set_keys(composed, {name: DEFAULTS[name] or 1.0 for name in names})
    config = fill_defaults(composed, TrainConfig)
    assert set(config.automatic) == set(AUTOMATIC) - names
    assert dataclasses.replace(config, automatic=[], trainer=TrainConfig().trainer) == TrainConfig()


@pytest.mark.parametrize("value", ["512", "64"])
def test_a_key_of_the_command_line_is_given(value: str) -> None:
    config = compose("train", "data=text", f"model.hidden_size={value}")
    assert config.model.hidden_size == int(value)
    assert set(config.automatic) == set(AUTOMATIC) - {"model.hidden_size"}


def test_null_leaves_a_key_to_the_program_again() -> None:
    assert "batch.size" in compose("train", "data=text", "batch.size=100", "batch.size=null").automatic


def test_a_key_of_a_yaml_file_is_given(tmp_path: Path) -> None:
    assert "schedule.warmup_steps" not in compose("train", "data=text", "schedule=inverse_sqrt").automatic


@pytest.mark.parametrize("option", [[], ["experiment=benchmark"], ["experiment=multi30k", "data=text"]])
def test_named_experiments_and_the_built_in_corpus_are_settled(option: list[str]) -> None:
    assert compose("train", *option).automatic == []


def test_quick_leaves_every_size_to_the_table() -> None:
    config = compose("train", "experiment=quick", "data=text")
    assert tuple(config.automatic) == AUTOMATIC
    assert config.trainer.max_minutes == 8


def test_the_user_names_what_is_automatic() -> None:
    assert compose("train", "data=text", "automatic=[batch.size,model.dropout]", "model.dropout=0").automatic == [
        "batch.size"
    ]
    with pytest.raises(UserError, match=r"unknown key in automatic 'batch.siz': .*did you mean 'batch.size'"):
        compose("train", "data=text", "automatic=[batch.siz]")


@pytest.mark.parametrize("file", sorted(FOLDER.glob("data/*.yaml")), ids=lambda file: file.stem)
def test_a_corpus_pins_all_or_nothing(file: Path) -> None:
    assert tuple(compose("train", f"data={file.stem}").automatic) in ((), AUTOMATIC)
