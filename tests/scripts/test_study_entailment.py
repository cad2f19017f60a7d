"""The study of entailment: on its own data, made small, on files, and with wrong options."""

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from studies import labeled_text
from tests.scripts.running import PNG, study, table

CLASSES = ("entailment", "neutral", "contradiction")
MODELS = ["attention", "untrained", "hypothesis_only", "mean_vectors"]
PAIRS = [("a man sleeps", "a man sleeps"), ("", "no"), ("yes", ""), ("a dog sleeps here", "a dog runs")]


def write_pairs(path: Path, labels: tuple[str, ...] = (*CLASSES, "-")) -> str:
    rows = [
        {"sentence1": premise, "sentence2": hypothesis, "gold_label": label}
        for premise, hypothesis in PAIRS
        for label in labels
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: Callable[[str], Any]) -> Callable[..., Path]:
    """Run the study on less data; return its folder."""

    def run(*arguments: str) -> Path:
        module = script("study_entailment")
        monkeypatch.setattr(module, "QUICK", module.EntailmentSetting(train=60, test=10, epochs=1))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["study_entailment.py", "--quick", *arguments])
        module.main()
        return tmp_path / "outputs/study_entailment_quick"

    return run


@pytest.mark.parametrize("normalizer", ["softmax", "hard"])
def test_built_in_data(small: Callable[..., Path], normalizer: str, capfd: pytest.CaptureFixture[str]) -> None:
    output = small("--score", "general", "--normalizer", normalizer)
    rows = table(output)
    assert [row["model"] for row in rows] == MODELS
    assert [row["epochs"] for row in rows] == ["1", "0", "1", "1"]
    assert [bool(row["aer"]) for row in rows] == [True, True, False, False]
    assert float(rows[2]["accuracy"]) == pytest.approx(1 / 3, rel=1e-4)
    with (output / "confusion.csv").open(encoding="utf-8") as file:
        counts = list(csv.DictReader(file))
    assert [(row["model"], row["class"]) for row in counts] == [(model, each) for model in MODELS for each in CLASSES]
    assert [sum(int(row[f"as_{each}"]) for each in CLASSES) for row in counts] == [10] * 12
    for row, start in zip(rows, range(0, 12, 3), strict=True):
        right = sum(int(counts[start + number][f"as_{each}"]) for number, each in enumerate(CLASSES))
        assert float(row["accuracy"]) == pytest.approx(right / 30, rel=1e-4)
    assert (output / "figure.png").read_bytes().startswith(PNG)
    captured = capfd.readouterr()
    assert "hypothesis_only: epoch 1 of 1" in captured.err
    assert "predicted classes" in captured.out


def test_files_like_those_of_snli(tmp_path: Path) -> None:
    train, test = write_pairs(tmp_path / "train.jsonl"), write_pairs(tmp_path / "test.jsonl", CLASSES[:2])
    done = study("study_entailment", "--data", train, "--test", test, "--epochs", "2", cwd=tmp_path)
    output = tmp_path / "outputs/study_entailment"
    rows = table(output)
    assert [row["model"] for row in rows] == MODELS
    assert not any(row["aer"] or row["accuracy_contradiction"] for row in rows)
    assert "dropped 4 rows without a label" in done.stderr
    assert "12 pairs to train on, 8 to test, 3 classes" in done.stderr
    assert (output / "figure.png").read_bytes().startswith(PNG)


def test_a_fifth_of_a_file_is_held_out(
    tmp_path: Path, call: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [{"p": premise, "h": hypothesis, "y": number % 2} for number, (premise, hypothesis) in enumerate(PAIRS * 3)]
    datasets.Dataset.from_list(rows).to_parquet(tmp_path / "pairs.parquet")
    columns = ("--text", "p", "h", "--label", "y")
    assert call("study_entailment", "--data", "pairs.parquet", *columns, "--epochs", "1", "--output", "out") == 0
    assert "10 pairs to train on, 2 to test, 2 classes" in capfd.readouterr().err
    assert "accuracy_1" in table(tmp_path / "out")[0]


def test_columns_and_splits_of_the_hub(script: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    module, calls = script("study_entailment"), []

    def load(*arguments: Any) -> labeled_text.LabeledCorpus:
        calls.append(arguments)
        return labeled_text.LabeledCorpus([("a", "b")], [1], ["x", "y"])

    monkeypatch.setattr(labeled_text, "load_labeled", load)
    data = module.real_data(module.build_parser().parse_args(["--data", "hub:snli"]))
    columns = (["premise", "hypothesis"], "label")
    assert calls == [("hub:snli", *columns, None, None), ("hub:snli", *columns, "test", ["x", "y"])]
    assert data.test == [module.LabeledPair("a", "b", 1)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["--score", "dott"], "unknown model.attention.score 'dott'"),
        (["--normalizer", "sparse"], "did you mean 'sparsemax'"),
        (["--data", "none.jsonl"], "no such file: none.jsonl"),
        (["--data", "pairs.jsonl", "--text", "sentence1", "sentence"], "no column 'sentence'"),
        (["--data", "pairs.jsonl", "--label", "label"], "no column 'label'"),
        (["--data", "pairs.jsonl", "--text", "sentence1", "number"], "does not hold text"),
        (["--data", "pairs.jsonl", "--test", "other.jsonl"], "the label 'other'"),
        (["--data", "few.jsonl"], "2 rows with a label, too few to hold some out: give --test"),
    ],
)
def test_mistakes_are_told_in_one_line(
    line: list[str], message: str, tmp_path: Path, call: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    row = {"sentence1": "a", "sentence2": "b", "number": 1}
    for name, labels in (("pairs", CLASSES * 2), ("other", ("other",)), ("few", CLASSES[:2])):
        text = "\n".join(json.dumps({**row, "gold_label": label}) for label in labels)
        (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
    assert call("study_entailment", *line) == 2
    error = capfd.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert message in error
    assert not (tmp_path / "outputs").exists()
