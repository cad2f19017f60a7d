import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest

from nmt.config.schema import DataConfig, HubConfig, SplitConfig
from nmt.data.hub import HubCorpus
from tests.composing import compose
from tests.messages import error_message

pytestmark = pytest.mark.usefixtures("own_datasets_cache")


def json_corpus(folder: Path, rows: list[dict[str, Any]], **config: Any) -> DataConfig:
    path = folder / "corpus.json"
    path.write_text("\n".join(map(json.dumps, rows)))
    return DataConfig(
        kind="hub", hub=HubConfig(path="json", data_files={"train": str(path), "validation": str(path)}, **config)
    )


ROWS = [{"id": i, "en": f"dog {i}", "fr": f"chien {i}"} for i in range(3)]


def test_columns_named_by_language(tmp_path: Path) -> None:
    corpus = HubCorpus(json_corpus(tmp_path, ROWS)).load("train")
    assert corpus.column_names == ["source", "target"]
    assert corpus[1] == {"source": "dog 1", "target": "chien 1"}


def test_columns_named_by_the_user(tmp_path: Path) -> None:
    config = json_corpus(tmp_path, [{"question": "a", "answer": "b"}], source_column="answer", target_column="question")
    assert HubCorpus(config).load("train")[:] == {"source": ["b"], "target": ["a"]}


@pytest.mark.parametrize("column", ["translation", "pair"])
def test_a_translation_column(tmp_path: Path, column: str) -> None:
    config = json_corpus(tmp_path, [{column: {"fr": "chat", "en": "cat"}}], translation_column=column)
    assert HubCorpus(config).load("train")[:] == {"source": ["cat"], "target": ["chat"]}


def test_a_translation_feature_of_a_parquet_file(tmp_path: Path) -> None:
    features = datasets.Features({"translation": datasets.Translation(["de", "en"])})
    rows = [{"translation": {"en": f"cat {i}", "de": f"Katze {i}"}} for i in range(4)]
    datasets.Dataset.from_list(rows, features=features).to_parquet(tmp_path / "x.parquet")
    files = {"train": str(tmp_path / "x.parquet")}
    config = DataConfig(kind="hub", target_language="de", hub=HubConfig(path="parquet", data_files=files))
    assert HubCorpus(config).load("train")["target"][:] == ["Katze 0", "Katze 1", "Katze 2", "Katze 3"]


@pytest.mark.parametrize("files", ["~/corpus.json", {"train": "~/corpus.json"}, {"train": ["~/corpus.json"]}])
def test_files_of_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Any) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "corpus.json").write_text("\n".join(map(json.dumps, ROWS)))
    corpus = HubCorpus(DataConfig(kind="hub", hub=HubConfig(path="json", data_files=files)))
    assert corpus.load("train")[1] == {"source": "dog 1", "target": "chien 1"}


def test_empty_cells_and_newlines_are_mended(tmp_path: Path) -> None:
    with (tmp_path / "x.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["en", "fr"], ["", "un"], ["two\nlines", "deux"]])
    config = DataConfig(kind="hub", hub=HubConfig(path="csv", data_files={"train": str(tmp_path / "x.csv")}))
    assert HubCorpus(config).load("train")[:] == {"source": ["", "two lines"], "target": ["un", "deux"]}


def test_words_that_pandas_takes_for_empty_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "x.csv").write_text('en,fr\nNone,Aucun\nNA,null\n"",nan\n')
    wanted = {"source": ["None", "NA", ""], "target": ["Aucun", "null", "nan"]}
    files = HubConfig(path="csv", data_files={"train": str(tmp_path / "set" / "x.csv")})
    repository = HubConfig(path=str(tmp_path / "set"))
    datasets.load_dataset(str(tmp_path / "set"))  # in the cache with empty cells
    for place in (files, repository):
        assert HubCorpus(DataConfig(kind="hub", hub=place)).load("train")[:] == wanted

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    (tmp_path / "hf" / "set").rename(tmp_path / "hf" / "me___set")  # as that of a repository of the hub
    for plain in (True, False):
        if not plain:
            shutil.rmtree(tmp_path / "hf" / "me___set" / "default")
        assert HubCorpus(DataConfig(kind="hub", hub=HubConfig(path="me/set"))).load("train")[:] == wanted


def test_a_column_of_numbers_may_lack_some(tmp_path: Path) -> None:
    """Also beyond the 10,000 rows by which `datasets` tells that they are numbers."""
    rows = [f"cat,chat,{number}\n" for number in range(10_000)]
    (tmp_path / "x.csv").write_text("".join(["en,fr,score\n", *rows, "NA,null,\n"]))
    config = DataConfig(kind="hub", hub=HubConfig(path="csv", data_files={"train": str(tmp_path / "x.csv")}))
    assert HubCorpus(config).load("train")[-1] == {"source": "NA", "target": "null"}


@pytest.mark.parametrize("number", ["007", "1.50", "True", "1" * 30])
def test_cells_that_pandas_takes_for_numbers(number: str, tmp_path: Path) -> None:
    """As it takes all cells of a column, or of the rows that it reads at once."""
    (tmp_path / "x.csv").write_text("en,fr\n" + "cat,chat\n" * 10_000 + f"{number},{number}\n")
    (tmp_path / "y.csv").write_text(f"en,fr\n{number},sept\n")
    files = {"train": str(tmp_path / "x.csv"), "validation": str(tmp_path / "y.csv")}
    corpus = HubCorpus(DataConfig(kind="hub", hub=HubConfig(path="csv", data_files=files)))
    assert corpus.load("train")[-1] == {"source": number, "target": number}
    assert corpus.load("validation")[:] == {"source": [number], "target": ["sept"]}


def test_rows_of_more_cells_than_columns(tmp_path: Path) -> None:
    """With the first row so, pandas would take its first cells for names of rows, and shift all cells."""
    config = DataConfig(kind="hub", hub=HubConfig(path="csv", data_files={"train": str(tmp_path / "x.csv")}))
    for rows in ("well, a cat,un chat\ndog,chien\n", "dog,chien\nwell, a cat,un chat\n"):
        (tmp_path / "x.csv").write_text(f"en,fr\n{rows}")
        assert "cannot load data set csv: " in complaint(config)
    (tmp_path / "x.csv").write_text("en,fr\na cat,un chat,\ndog,chien,\n")  # each ends with a comma
    assert HubCorpus(config).load("train")[:] == {"source": ["a cat", "dog"], "target": ["un chat", "chien"]}


@pytest.mark.parametrize(
    ("cells", "source"), [([None, "b"], ["", "b"]), (["a\nb", "c"], ["a b", "c"])], ids=["empty", "newline"]
)
def test_either_is_mended_without_the_other(tmp_path: Path, cells: list[str | None], source: list[str]) -> None:
    datasets.Dataset.from_dict({"en": cells, "fr": ["un", "deux"]}).to_parquet(tmp_path / "x.parquet")
    config = DataConfig(kind="hub", hub=HubConfig(path="parquet", data_files={"train": str(tmp_path / "x.parquet")}))
    assert HubCorpus(config).load("train")["source"][:] == source


def test_split_names(tmp_path: Path) -> None:
    config = json_corpus(tmp_path, ROWS)
    config.train = SplitConfig(name="validation[1:]")
    assert HubCorpus(config).load("train")["source"][:] == ["dog 1", "dog 2"]
    assert HubCorpus(config).has_split("train")
    assert HubCorpus(config).has_split("validation")
    assert not HubCorpus(config).has_split("test")


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


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    """The sentences are looked at, not columns that are not read."""
    row = '{"en": "school", "fr": "école", "id": "é"}\n'
    (tmp_path / "x.json").write_bytes(row.encode("latin1"))
    config = DataConfig(kind="hub", hub=HubConfig(path="json", data_files={"train": str(tmp_path / "x.json")}))
    assert "column 'fr' of data set json is not UTF-8: convert its files, e.g. with iconv -f" in complaint(config)
    (tmp_path / "x.json").write_bytes(row.replace("é", "e", 1).encode("latin1"))
    assert HubCorpus(config).load("train")["target"][:] == ["ecole"]


@pytest.mark.parametrize("size", [None, 0, 50, 500, 1_000])
@pytest.mark.parametrize("name", ["json-train.arrow", "cache-*.arrow"], ids=["prepared", "mended"])
def test_a_damaged_cache(name: str, size: int | None, tmp_path: Path) -> None:
    """Without a file, as those that clean caches leave it, or with a part of one, as a loss of power does."""
    config = json_corpus(tmp_path, [{"en": "two\nlines", "fr": "deux"}] * 100)
    wanted = HubCorpus(config).load("train")[:]
    (damaged,) = Path(datasets.config.HF_DATASETS_CACHE).rglob(name)
    if size is None:
        damaged.unlink()
    else:
        os.truncate(damaged, size)
    if size is not None or name == "json-train.arrow":  # the mended one is made anew
        assert complaint(config).startswith(f"{damaged.parent} is damaged (")
        shutil.rmtree(damaged.parent)
    assert HubCorpus(config).load("train")[:] == wanted


def test_wrong_data_set(tmp_path: Path) -> None:
    assert "data=hub needs a data set: set data.hub.path" in complaint(DataConfig(kind="hub"))
    missing = HubConfig(path="json", data_files={"train": str(tmp_path / "none.json")})
    assert "cannot load data set json: " in complaint(DataConfig(kind="hub", hub=missing))
    for name, rows in (("empty.json", ""), ("names[1].json", json.dumps(ROWS[0]))):
        (tmp_path / name).write_text(rows)
        nothing = HubConfig(path="json", data_files={"train": str(tmp_path / name)})
        message = "data set json has no rows, or no file of that name ([ ] * ? stand for other characters): check data."
        assert message in complaint(DataConfig(kind="hub", hub=nothing))
    (tmp_path / "bad.json").write_text("{ no json")
    broken = HubConfig(path="json", data_files={"train": str(tmp_path / "bad.json")})
    assert "cannot load data set json: " in complaint(DataConfig(kind="hub", hub=broken))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("json", "data.hub.path=json needs files: set 'data.hub.data_files={train:F,validation:F}'"),
        ("text", "data.hub.path=text has one column, a corpus has two: use data=text with data.train.source=F"),
    ],
)
def test_a_builder_that_cannot_work(path: str, message: str) -> None:
    assert message in complaint(DataConfig(kind="hub", hub=HubConfig(path=path)))


@pytest.mark.parametrize(
    "settings",
    [
        {"path": "bentrevett/multi30k"},
        {"path": "IWSLT/iwslt2017", "revision": "refs/convert/parquet", "data_files": {"train": "a/train/*.parquet"}},
        {"path": "parquet", "data_files": {"train": "hf://datasets/a/b/c.parquet"}},
    ],
)
def test_the_hub_cannot_be_reached(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://localhost:1")
    monkeypatch.setenv("NO_PROXY", "localhost")
    # Its client, which would try again and again, is not even asked.
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda *_, **__: pytest.fail("the client was asked"))
    message = complaint(DataConfig(kind="hub", hub=HubConfig(**settings)))
    assert f"cannot reach http://localhost:1 for data set {settings['path']} (" in message
    assert "or use data=text with files of your own" in message
    # `datasets` finds in its cache what the hub named, but not what `data_files` did.
    assert ("set HF_HUB_OFFLINE=1 if the data set is in the cache" in message) == ("data_files" not in settings)


def test_files_of_the_hub_are_not_found_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert complaint(compose("train", "data=iwslt2017").data).startswith(
        "data.hub.data_files of IWSLT/iwslt2017 are listed by the hub, even if they are in the cache, and HF_HUB_OFF"
    )


def test_offline_and_not_in_the_cache(tmp_path: Path) -> None:
    program = (
        "from nmt.config.schema import *; from nmt.data.hub import *;"
        "HubCorpus(DataConfig(kind='hub', hub=HubConfig(path='bentrevett/multi30k'))).load('train')"
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


@pytest.mark.parametrize("builder", ["json", "csv", "parquet"])
def test_a_run_on_files_with_columns(
    builder: str, tmp_path: Path, tiny_options: list[str], call: Callable[..., Any]
) -> None:
    rows = datasets.Dataset.from_list(
        [{"en": f"the dog sees {i} cats", "de": f"der Hund sieht {i}"} for i in range(60)]
    )
    for split in ("train", "validation"):
        getattr(rows, f"to_{builder}")(tmp_path / f"{split}.{builder}")
    files = ",".join(f"{split}:{split}.{builder}" for split in ("train", "validation"))
    data = ("data=hub", f"data.hub.path={builder}", f"data.hub.data_files={{{files}}}", "data.target_language=de")
    limits = ("trainer.max_steps=1", "tokenizer.vocab_size=300", "trainer.evaluate=false", "trainer.num_samples=0")
    done = call("train", *tiny_options, *data, *limits, "run_dir=run")
    assert done.returncode == 0, done.stderr
    assert "train: kept 60 of 60 pairs" in (tmp_path / "run/train.log").read_text(encoding="utf-8")


def test_a_run_needs_a_split_to_validate_on(tmp_path: Path, tiny_options: list[str], call: Callable[..., Any]) -> None:
    (tmp_path / "all.json").write_text("\n".join(map(json.dumps, ROWS)))
    data = ("data=hub", "data.hub.path=json", "data.hub.data_files=all.json", "trainer.max_steps=1")
    done = call("train", *tiny_options, *data, "run_dir=run")
    assert done.returncode == 2
    assert "error: data set json has no split 'validation': set data.validation.name to another, or to" in done.stderr


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A folder like the branch of parquet files that the hub makes of IWSLT 2017: a folder a pair, and one a split."""
    for source, target in (("de", "en"), ("en", "fr")):
        features = datasets.Features({"translation": datasets.Translation([source, target])})
        for split in ("train", "validation", "test"):
            rows = [{"translation": {source: f"{split} {source}", target: f"{split} {target}"}}]
            file = tmp_path / "branch" / f"iwslt2017-{source}-{target}" / split / "0000.parquet"
            file.parent.mkdir(parents=True)
            datasets.Dataset.from_list(rows, features=features).to_parquet(file)
    return tmp_path / "branch"


@pytest.mark.parametrize("pair", [("de", "en"), ("en", "fr")])
def test_iwslt2017_reads_the_files_of_its_pair(exported: Path, pair: tuple[str, str]) -> None:
    source, target = pair
    data = compose("train", "data=iwslt2017", f"data.source_language={source}", f"data.target_language={target}").data
    data.hub.path = str(exported)
    for split in ("train", "validation", "test"):
        assert HubCorpus(data).load(split)[:] == {"source": [f"{split} {source}"], "target": [f"{split} {target}"]}


@pytest.mark.parametrize("name", ["multi30k", "wmt14"])
def test_a_named_corpus_has_its_columns(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With the files and columns that the hub's pages show, in a folder in place of the repository."""
    folder = tmp_path_factory.mktemp("repository")  # `tmp_path` has test in its name, which would pass for a split's
    row: dict[str, Any] = {"en": "a cat", "de": "eine Katze"}
    for split, file in (("train", "train"), ("validation", "val"), ("test", "test")):
        if name == "multi30k":
            (folder / f"{file}.jsonl").write_text(json.dumps(row))
        else:
            features = datasets.Features({"translation": datasets.Translation(["de", "en"])})
            corpus = datasets.Dataset.from_list([{"translation": row}], features=features)
            corpus.to_parquet(folder / f"{split}-00000-of-00001.parquet")
    data = compose("train", f"data={name}").data
    data.hub.path = str(folder)
    data.hub.name = None  # which the page of the repository explains, and a folder has not
    for split in ("train", "validation", "test"):
        assert HubCorpus(data).load(split)[:] == {"source": ["a cat"], "target": ["eine Katze"]}


def complaint(config: DataConfig) -> str:
    return error_message(HubCorpus(config).load, "train")
