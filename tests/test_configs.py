"""Every YAML file and every experiment composes into a configuration that passes its checks."""

from pathlib import Path
from typing import Any

import hydra
import pytest
from omegaconf import OmegaConf

from nmt.cli import config_folder, register_schemas
from nmt.config import EvaluateConfig, TrainConfig, check

FOLDER = config_folder()
GROUPS = sorted(folder.name for folder in FOLDER.iterdir() if folder.is_dir())
OPTIONS = [f"{file.parent.name}={file.stem}" for file in sorted(FOLDER.glob("*/*.yaml"))]


def compose(root: str, *overrides: str) -> Any:
    register_schemas()
    with hydra.initialize_config_dir(config_dir=str(FOLDER), version_base="1.3"):
        config = OmegaConf.to_object(hydra.compose(root, overrides=list(overrides)))
    check(config)
    return config


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_composes(option: str) -> None:
    assert isinstance(compose("train", option), TrainConfig)


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_root_file_composes(file: Path) -> None:
    assert isinstance(compose(file.stem), TrainConfig | EvaluateConfig)


def test_the_groups_are_those_of_the_design() -> None:
    assert GROUPS == ["data", "experiment", "model", "optimizer", "schedule", "search"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("data=text", ("data", "kind", "text")),
        ("model=luong", ("model", "decoder", "luong")),
        ("model=conditional", ("model", "decoder", "conditional")),
        ("schedule=plateau", ("schedule", "kind", "plateau")),
        ("search=greedy", ("search", "beam_size", 1)),
    ],
)
def test_an_option_sets_what_it_is_named_after(option: str, value: tuple[str, str, Any]) -> None:
    section, name, expected = value
    assert getattr(getattr(compose("train", option), section), name) == expected


def test_the_default_is_the_grammar() -> None:
    config = compose("train")
    assert (config.data.kind, config.model.decoder, config.schedule.kind) == ("grammar", "bahdanau", "cosine")


def test_an_experiment_overrides_groups_and_the_command_line_overrides_it() -> None:
    assert compose("train", "experiment=multi30k").data.hub.path == "bentrevett/multi30k"
    config = compose("train", "experiment=multi30k", "data=text", "data.train.source=[a.en,b.en]")
    assert (config.data.kind, config.data.target_language) == ("text", "de")
    assert config.data.train.source == ["a.en", "b.en"]
    assert config.model.decoder == "conditional"


def test_the_pair_of_iwslt2017_follows_the_languages() -> None:
    config = compose("train", "data=iwslt2017", "data.source_language=en", "data.target_language=fr")
    assert config.data.hub.name == "iwslt2017-en-fr"
