"""Labeled text from files of every kind, and from data sets of the hub."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest

from studies.labeled_text import load_labeled
from tests.messages import error_message

ROWS: list[dict[str, Any]] = [
    {"text": '"A good film', "label": "good"},
    {"text": "bad", "label": "bad"},
    {"text": "NA", "label": "good"},
]


pytestmark = pytest.mark.usefixtures("own_datasets_cache")


def write_csv(rows: list[dict[str, Any]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def write_tsv(rows: list[dict[str, Any]], path: Path) -> None:
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    path.write_text("".join("\t".join(map(str, line)) + "\n" for line in lines), encoding="utf-8")


def write_jsonl(rows: list[dict[str, Any]], path: Path) -> None:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def write_json(rows: list[dict[str, Any]], path: Path) -> None:
    path.write_text(json.dumps(rows), encoding="utf-8")


def write_parquet(rows: list[dict[str, Any]], path: Path) -> None:
    datasets.Dataset.from_list(rows).to_parquet(path)


WRITERS: dict[str, Callable[[list[dict[str, Any]], Path], None]] = {
    "csv": write_csv,
    "tsv": write_tsv,
    "jsonl": write_jsonl,
    "json": write_json,
    "parquet": write_parquet,
}


def write(folder: Path, rows: list[dict[str, Any]], kind: str = "jsonl") -> str:
    path = folder / f"corpus.{kind}"
    WRITERS[kind](rows, path)
    return str(path)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_of_each_kind(kind: str, tmp_path: Path) -> None:
    corpus = load_labeled(write(tmp_path, ROWS, kind), ["text"], "label")
    assert corpus.texts == [('"A good film',), ("bad",), ("NA",)]
    assert corpus.classes == ["bad", "good"]
    assert corpus.labels == [1, 0, 1]
    assert (corpus.dropped, len(corpus)) == (0, 3)


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_numbers_of_a_file_of_cells_are_sorted_by_value(kind: str, tmp_path: Path) -> None:
    rows = [{"text": str(label), "label": label} for label in (10, 9, 1, "")]
    corpus = load_labeled(write(tmp_path, rows, kind), ["text"], "label")
    assert (corpus.classes, corpus.labels, corpus.dropped) == (["1", "9", "10"], [2, 1, 0], 1)
    assert corpus.texts == [("10",), ("9",), ("1",)]


@pytest.mark.parametrize(
    ("labels", "classes", "numbers", "kept"),
    [
        ([3, None, 1, -1], ["1", "3"], [1, 0], [0, 2]),
        ([1.0, None, 0.0], ["0", "1"], [1, 0], [0, 2]),
        ([None, True, False], ["False", "True"], [1, 0], [1, 2]),
        (["no", "-", " yes", "", None], ["no", "yes"], [0, 1], [0, 2]),
    ],
)
def test_rows_without_a_label_are_dropped_and_counted(
    labels: list[Any], classes: list[str], numbers: list[int], kept: list[int], tmp_path: Path
) -> None:
    rows = [{"text": str(number), "label": label} for number, label in enumerate(labels)]
    corpus = load_labeled(write(tmp_path, rows, "parquet"), ["text"], "label")
    assert (corpus.classes, corpus.labels, corpus.dropped) == (classes, numbers, len(labels) - len(kept))
    assert corpus.texts == [(str(row),) for row in kept]


def test_pairs_and_missing_texts(tmp_path: Path) -> None:
    rows = [{"a": "x", "b": None, "label": 0}, {"a": None, "b": "y", "label": 1}]
    assert load_labeled(write(tmp_path, rows), ["b", "a"], "label").texts == [("", "x"), ("y", "")]


def test_nested_columns(tmp_path: Path) -> None:
    rows = [{"pair": {"text": f"t{label}", "label": label}} for label in (0, 1)]
    assert load_labeled(write(tmp_path, rows), ["pair.text"], "pair.label").texts == [("t0",), ("t1",)]


@pytest.fixture
def hub(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder in place of a repository: two splits with a ClassLabel, of which training lacks a class."""
    folder = tmp_path_factory.mktemp("repository")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["yes", "no", "maybe"])}
    )
    for split, labels in (("train", [1, 0, -1, None]), ("test", [2, 0])):
        rows = [{"text": f"{split} {label}", "label": label} for label in labels]
        datasets.Dataset.from_list(rows, features=features).to_parquet(folder / f"{split}-00000-of-00001.parquet")
    return f"hub:{folder}"


def test_a_class_label_has_its_names(hub: str) -> None:
    train = load_labeled(hub, ["text"], "label")
    assert (train.classes, train.labels, train.dropped) == (["yes", "no", "maybe"], [1, 0], 2)
    test = load_labeled(hub, ["text"], "label", split="test[1:]", classes=["no", "yes"])
    assert (test.texts, test.labels, test.classes) == ([("test 0",)], [1], ["no", "yes"])


def test_a_validation_file_may_lack_classes(tmp_path: Path) -> None:
    corpus = load_labeled(write(tmp_path, ROWS[:1]), ["text"], "label", classes=["bad", "good"])
    assert corpus.labels == [1]


def complaint(source: str, text: str = "text", label: str = "label", **options: Any) -> str:
    return error_message(load_labeled, source, [text], label, **options)


@pytest.mark.parametrize("kind", WRITERS)
def test_wrong_columns(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path, [{**row, "length": "1"} for row in ROWS], kind)
    there = "name one of text, label, length"
    assert f"{path} has no column 'txt': {there}; did you mean 'text'?" in complaint(path, text="txt")
    assert f"{path} has no column 'gold': {there}" in complaint(path, label="gold")
    assert f"column 'length' of {path} holds one class only, '1': name another" in complaint(path, label="length")
    assert f"data set {path} has no split 'test': set the split to one of train" in complaint(path, split="test")


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "text.json"
    path.write_bytes('{"text": "café", "label": "good"}\n'.encode("latin1"))
    assert f"column 'text' of data set {path} is not UTF-8: convert its files" in complaint(str(path))


def test_columns_that_hold_something_else(tmp_path: Path) -> None:
    path = write(tmp_path, [{"text": 1, "label": [1]}])
    assert f"column 'text' of {path} does not hold text: name another of text, label" in complaint(path)
    assert f"column 'label' of {path} does not hold labels" in complaint(write(tmp_path, [{"text": "a", "label": [1]}]))
    many = write(tmp_path, [{"text": "a", "label": str(number)} for number in range(1_001)])
    assert "holds 1,001 different labels" in complaint(many)


def test_labels_that_training_does_not_have(tmp_path: Path) -> None:
    path = write(tmp_path, ROWS)
    message = complaint(path, classes=["bad", "goood"])
    assert f"column 'label' of {path} holds the label 'good', which the training data does not have (bad, " in message
    assert message.endswith("did you mean 'goood'?")
    none = complaint(write(tmp_path, [{"text": "a", "label": -1}]))
    assert "holds no rows with a label in column 'label'" in none


def test_wrong_files(tmp_path: Path) -> None:
    assert f"no such file: {tmp_path}/no.csv (looked for in " in complaint(f"{tmp_path}/no.csv")
    assert "no such file: " in complaint(str(tmp_path))
    for name, content, message in (
        ("a.xml", "<a/>", "its name must end in one of .csv, .tsv, .json, .jsonl, .parquet"),
        ("a.csv", "", "a.csv is empty"),
        ("b.csv", "text,label\n", "b.csv has no rows in its split 'train'"),
        ("c.json", "{ no json", "cannot load data set json: "),
        ("d.parquet", "no parquet", "cannot load data set parquet: "),
        ("e.csv", 'text,label\n"a\n', "cannot load data set csv: "),
    ):
        (tmp_path / name).write_text(content)
        assert message in complaint(str(tmp_path / name))


def test_the_hub_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://localhost:1")
    monkeypatch.setenv("NO_PROXY", "localhost")
    message = complaint("hub:stanfordnlp/snli")
    assert "cannot reach http://localhost:1 for data set stanfordnlp/snli (" in message
    assert message.endswith("or use a file of your own")
    assert "write hub:NAME or hub:NAME:CONFIG" in complaint("hub:")
