import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest

from nmt.config import DataConfig, HubConfig, SplitConfig
from nmt.data import hub
from nmt.errors import UserError


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")


def json_corpus(folder: Path, rows: list[dict[str, Any]], **config: Any) -> DataConfig:
    path = folder / "corpus.json"
    path.write_text("\n".join(map(json.dumps, rows)))
    return DataConfig(
        kind="hub", hub=HubConfig(path="json", data_files={"train": str(path), "validation": str(path)}, **config)
    )


ROWS = [{"id": i, "en": f"dog {i}", "fr": f"chien {i}"} for i in range(3)]


def test_columns_named_by_language(tmp_path: Path) -> None:
    corpus = hub.load(json_corpus(tmp_path, ROWS), "train")
    assert corpus.column_names == ["source", "target"]
    assert corpus[1] == {"source": "dog 1", "target": "chien 1"}


def test_columns_named_by_the_user(tmp_path: Path) -> None:
    config = json_corpus(tmp_path, [{"question": "a", "answer": "b"}], source_column="answer", target_column="question")
    assert hub.load(config, "train")[:] == {"source": ["b"], "target": ["a"]}


@pytest.mark.parametrize("column", ["translation", "pair"])
def test_a_translation_column(tmp_path: Path, column: str) -> None:
    config = json_corpus(tmp_path, [{column: {"fr": "chat", "en": "cat"}}], translation_column=column)
    assert hub.load(config, "train")[:] == {"source": ["cat"], "target": ["chat"]}


def test_a_translation_feature_of_a_parquet_file(tmp_path: Path) -> None:
    features = datasets.Features({"translation": datasets.Translation(["de", "en"])})
    rows = [{"translation": {"en": f"cat {i}", "de": f"Katze {i}"}} for i in range(4)]
    datasets.Dataset.from_list(rows, features=features).to_parquet(tmp_path / "x.parquet")
    files = {"train": str(tmp_path / "x.parquet")}
    config = DataConfig(kind="hub", target_language="de", hub=HubConfig(path="parquet", data_files=files))
    assert hub.load(config, "train")["target"][:] == ["Katze 0", "Katze 1", "Katze 2", "Katze 3"]


def test_empty_cells_and_newlines_are_mended(tmp_path: Path) -> None:
    with (tmp_path / "x.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["en", "fr"], ["", "un"], ["two\nlines", "deux"]])
    config = DataConfig(kind="hub", hub=HubConfig(path="csv", data_files={"train": str(tmp_path / "x.csv")}))
    assert hub.load(config, "train")[:] == {"source": ["", "two lines"], "target": ["un", "deux"]}


def test_split_names(tmp_path: Path) -> None:
    config = json_corpus(tmp_path, ROWS)
    config.train = SplitConfig(name="validation[1:]")
    assert hub.load(config, "train")["source"][:] == ["dog 1", "dog 2"]
    assert hub.has(config, "train")
    assert hub.has(config, "validation")
    assert not hub.has(config, "test")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("test", "data set json has no split 'test': set data.train.name to one of train, validation"),
        (
            "vaildation",
            "has no split 'vaildation': set data.train.name to one of train, validation; did you mean 'validation'?",
        ),
        ("train[x:]", "data.train.name=train[x:] cannot be read as a slice of a split: "),
    ],
)
def test_wrong_split(tmp_path: Path, name: str, message: str) -> None:
    config = json_corpus(tmp_path, ROWS)
    config.train = SplitConfig(name=name)
    assert message in complaint(config)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"source_column": "enn"},
            "has no column 'enn': set data.source_language or data.hub.source_column to one of id, en, fr; "
            "did you mean 'en'?",
        ),
        (
            {"target_column": "zz"},
            "data set json has no column 'zz': set data.target_language or data.hub.target_column to one of id, en, fr",
        ),
        ({"source_column": "id"}, "column 'id' of data set json does not hold text: set data.hub.source_column"),
        ({"source_column": "fr"}, "source and target are both column 'fr'"),
    ],
)
def test_wrong_column(tmp_path: Path, settings: dict[str, str], message: str) -> None:
    assert message in complaint(json_corpus(tmp_path, ROWS, **settings))


def test_wrong_data_set(tmp_path: Path) -> None:
    assert "data=hub needs a data set: set data.hub.path" in complaint(DataConfig(kind="hub"))
    missing = HubConfig(path="json", data_files={"train": str(tmp_path / "none.json")})
    assert "cannot load data set json: " in complaint(DataConfig(kind="hub", hub=missing))
    (tmp_path / "bad.json").write_text("{ no json")
    broken = HubConfig(path="json", data_files={"train": str(tmp_path / "bad.json")})
    assert "cannot load data set json: " in complaint(DataConfig(kind="hub", hub=broken))


@pytest.mark.parametrize(
    "settings",
    [{"path": "bentrevett/multi30k"}, {"path": "parquet", "data_files": {"train": "hf://datasets/a/b/c.parquet"}}],
)
def test_the_hub_cannot_be_reached(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://localhost:1")
    monkeypatch.setenv("NO_PROXY", "localhost")
    start = time.monotonic()
    message = complaint(DataConfig(kind="hub", hub=HubConfig(**settings)))
    assert time.monotonic() - start < 5
    assert f"cannot reach http://localhost:1 for data set {settings['path']} (" in message
    assert "set HF_HUB_OFFLINE=1 if the data set is in the cache already, or use data=text" in message


def test_offline_and_not_in_the_cache(tmp_path: Path) -> None:
    program = (
        "from nmt.config import *; from nmt.data import hub;"
        "hub.load(DataConfig(kind='hub', hub=HubConfig(path='bentrevett/multi30k')), 'train')"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (
        f"UserError: data set bentrevett/multi30k is not in the cache {tmp_path}/datasets, and HF_HUB_OFFLINE"
        in run.stderr
    )


def complaint(config: DataConfig) -> str:
    with pytest.raises(UserError) as caught:
        hub.load(config, "train")
    assert "\n" not in str(caught.value)
    return str(caught.value)
