"""Every YAML file and every experiment composes into a configuration that passes its checks."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nmt.config.schema import EvaluateConfig, ServeConfig, TrainConfig, keys
from nmt.data.corpus import CORPORA
from nmt.models.decoder import DECODERS
from tests.composing import FOLDER, compose
from tests.runs import ROOT

GROUPS = sorted(folder.name for folder in FOLDER.iterdir() if folder.is_dir())
OPTIONS = [f"{file.parent.name}={file.stem}" for file in sorted(FOLDER.glob("*/*.yaml"))]


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_composes(option: str) -> None:
    config = compose("train", option)
    assert isinstance(config, TrainConfig)
    DECODERS[config.model.decoder].check_ignored_settings(config.model)


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_root_file_composes(file: Path) -> None:
    assert isinstance(compose(file.stem), TrainConfig | EvaluateConfig | ServeConfig)


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
    assert config.model.decoder == "luong"


def test_the_pair_of_iwslt2017_follows_the_languages() -> None:
    config = compose("train", "data=iwslt2017", "data.source_language=en", "data.target_language=fr")
    assert config.data.hub.data_files["train"] == "iwslt2017-en-fr/train/*.parquet"


def texts() -> Iterator[str]:
    """Everything that speaks to the user: strings and docstrings of the source, comments of the YAML files, pages."""
    for file in (*ROOT.glob("nmt/**/*.py"), *ROOT.glob("scripts/*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
    for file in (*FOLDER.rglob("*.yaml"), ROOT / "README.md", *ROOT.glob("docs/*.md")):
        yield file.read_text(encoding="utf-8")


def test_every_option_that_a_text_names_exists() -> None:
    named = {
        f"{group}={name}"
        for group, names in re.findall(rf"\b({'|'.join(GROUPS)})=([a-z]\w*(?:[,|]\w+)*)", "\n".join(texts()))
        for name in re.split(r"[,|]", names)
    }
    assert {"data=hub", "model=gnmt", "experiment=multi30k"} <= named
    assert named <= set(OPTIONS)


def test_every_kind_of_data_and_model_has_an_option() -> None:
    """Messages name them: `data={config.kind}`."""
    choices = {name: member.metadata["choices"] for name, member, _ in keys(TrainConfig())}
    kinds = {("data", kind) for kind in CORPORA} | {("model", kind) for kind in DECODERS}
    kinds |= {("schedule", kind) for kind in choices["schedule.kind"]}
    assert {f"{group}={kind}" for group, kind in kinds} <= set(OPTIONS)
