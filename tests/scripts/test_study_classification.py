"""The study of classification on sentences of its own and on labeled files, and its mistakes in one line."""

import itertools
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import datasets
import pytest

from tests.scripts.running import PNG, study, table

ENTMAX = "additive-entmax15-global"
# Each label has words of its own; the others say nothing.
DECIDING = {"praise": ("splendid", "lovely"), "blame": ("dreadful", "boring"), "report": ("yesterday", "Tuesday")}
FILLERS = ("the", "film", "a", "song", "he", "saw", "heard", ",", "in", "town", "with", "me", "and", "them")


pytestmark = pytest.mark.usefixtures("own_datasets_cache")


def reviews(count: int, seed: int, labels: Sequence[str] = tuple(DECIDING)) -> list[dict[str, str]]:
    choose, rows = random.Random(seed), []
    for label in itertools.islice(itertools.cycle(labels), count):
        words = choose.choices(FILLERS, k=choose.randint(3, 12))
        words.insert(choose.randint(0, len(words)), choose.choice(DECIDING[label]))
        rows.append({"review": " ".join(words), "verdict": label})
    return rows


def test_the_built_in_sentences(tmp_path: Path) -> None:
    """Far fewer and shorter than those of the study; attention finds the word that decides."""
    small = ("--quick", "--sentences", "1000", "--clauses", "2", "--epochs", "10", "--threads", "1")
    done = study("study_classification", *small, "--poolings", ENTMAX, cwd=tmp_path)
    output = tmp_path / "outputs/study_classification_quick"
    (attention,) = table(output)
    assert float(attention["accuracy"]) > 0.93
    assert float(attention["weight"]) > 0.6 > 0.5 > float(attention["saliency"])
    assert float(attention["weight_first"]) > 0.8
    for name in ("figure.png", "words.png"):
        assert (output / name).read_bytes().startswith(PNG)
    assert "1,000 sentences to train on, 500 to test, 2 classes" in done.stderr
    assert f"{ENTMAX}: epoch 10 of 10, batch 16 of 16, loss " in done.stderr
    assert "cpu seconds" in done.stdout


def test_labeled_files(tmp_path: Path, call: Callable[..., int], capfd: pytest.CaptureFixture[str]) -> None:
    """Three classes; training from Parquet, test from lines of JSON: one without words, one without a label."""
    datasets.Dataset.from_list(reviews(600, seed=1)).to_parquet(tmp_path / "train.parquet")
    rows = [*reviews(90, seed=2), {"review": "", "verdict": "report"}, {"review": "a film", "verdict": None}]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    data = ("--data", "train.parquet", "--test", "test.jsonl", "--text", "review", "--label", "verdict")
    assert call("study_classification", *data, "--poolings", "mean", ENTMAX, "--threads", "1", "--output", "out") == 0
    mean, attention = table(tmp_path / "out")
    assert float(attention["accuracy"]) > 0.95
    assert float(attention["macro_f1"]) == pytest.approx(float(attention["accuracy"]), abs=0.05)
    assert float(attention["to_19"]) == pytest.approx(float(attention["accuracy"]))
    assert (attention["from_40"], attention["weight"], mean["saliency"]) == ("", "", "")
    assert float(attention["correlation"]) > 0.3
    assert (tmp_path / "out/words.png").read_bytes().startswith(PNG)
    errors = capfd.readouterr().err
    assert "test.jsonl: dropped 1 rows without a label" in errors
    assert "600 sentences to train on, 91 to test, 3 classes" in errors


def test_every_fifth_row_is_held_out(
    tmp_path: Path, call: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    """Without attention there are no weights to draw, and those of an earlier call do not stay beside the table."""
    output = tmp_path / "outputs/study_classification"
    output.mkdir(parents=True)
    (output / "words.png").touch()
    rows = reviews(51, seed=1, labels=["praise", "blame"])
    lines = ["review,verdict", *(f'"{row["review"]}",{row["verdict"]}' for row in rows)]
    (tmp_path / "all.csv").write_text("\n".join(lines), encoding="utf-8")
    data = ("--data", "all.csv", "--text", "review", "--label", "verdict", "--epochs", "1")
    assert call("study_classification", *data, "--poolings", "last", "--threads", "1") == 0
    assert "41 sentences to train on, 10 to test, 2 classes" in capfd.readouterr().err
    assert {path.name for path in output.iterdir()} == {"figure.png", "table.csv"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["--task", "numbers"], "unknown task 'numbers': choose one of negation, number; did you mean 'number'?"),
        (["--poolings", "last", "first"], "unknown pooling 'first': choose last, mean or SCORE-NORMALIZER-WINDOW"),
        (["--poolings", "dot-softmax-globe"], "did you mean 'global'?"),
        (["--data", "none.csv"], "no such file: none.csv"),
        (["--data", "none.csv", "--task", "number"], "--task is of the built-in data: leave it out, or --data"),
        (["--data", "none.csv", "--clauses", "2"], "--clauses is of the built-in data"),
        (["--data", "train.jsonl", "--text", "reviews"], "has no column 'reviews': name one of review, verdict, note"),
        (["--data", "train.jsonl", "--text", "review"], "has no column 'label': name one of review, verdict, note"),
        (
            ["--data", "train.jsonl", "--text", "note", "--label", "verdict"],
            "column 'note' of train.jsonl does not hold",
        ),
        (
            ["--data", "train.jsonl", "--text", "review", "--label", "verdict"],
            "train.jsonl has 4 rows with a label, too",
        ),
        (
            ["--data", "train.jsonl", "--test", "test.jsonl", "--text", "review", "--label", "verdict"],
            "column 'verdict' of test.jsonl holds the label 'report', which the training data does not have",
        ),
        (
            ["--data", "train.jsonl", "--test-split", "dev", "--text", "review", "--label", "verdict"],
            "data set train.jsonl has no split 'dev': set the split to one of train",
        ),
    ],
)
def test_mistakes_are_told_in_one_line(
    line: list[str], message: str, tmp_path: Path, call: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    for name, rows in (("train", reviews(4, 1, ["praise", "blame"])), ("test", reviews(3, 1))):
        lines = [json.dumps({**row, "note": 1}) for row in rows]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert call("study_classification", *line) == 2
    error = capfd.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ")
    assert message in error
    assert not (tmp_path / "outputs").exists()
