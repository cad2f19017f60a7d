"""What is said at the end of a run, finding by finding."""

import json
from pathlib import Path
from typing import Any

import datasets
import pytest

from nmt.config.schema import DataConfig, SplitConfig, TrainConfig, TrainerConfig
from nmt.data.corpus import load_split
from nmt.training.notes import (
    copies,
    diverged,
    few_updates,
    low_bleu,
    other_language,
    overfitting,
    overlap,
    still_improving,
    training_notes,
    unspaced,
)

SCORES = {"bleu": 0.2, "split": "test", "bleu_tokenize": "13a"}
LONGER = "train longer (trainer.max_minutes)"


@pytest.mark.parametrize(
    ("step", "warmup_steps", "note"),
    [
        (54, 200, f"54 updates, warm-up unfinished (200): {LONGER}, or lower batch.size"),
        (54, 50, f"only 54 updates: {LONGER}, or lower batch.size"),
        (54, 54, f"only 54 updates: {LONGER}, or lower batch.size"),
        (999, 1_000, f"999 updates, warm-up unfinished (1000): {LONGER}, or lower batch.size"),
        (300, 0, None),
    ],
)
def test_few_updates(step: int, warmup_steps: int, note: str | None) -> None:
    assert few_updates(step, warmup_steps, LONGER) == note


@pytest.mark.parametrize(
    ("metric", "values", "note"),
    [
        ("bleu", [5.0, 22.1, 27.7], f"BLEU was still improving at the end, from 22.10 to 27.70: {LONGER}"),
        ("loss", [3.0, 2.0], f"loss was still improving at the end, from 3.000 to 2.000: {LONGER}"),
        ("bleu", [22.1, 98.8, 99.0], None),  # less than 2%
        ("bleu", [27.7, 22.1], None),
        ("loss", [2.0, 3.0], None),
        ("loss", [2.6, 3.3, 3.2], None),  # it rises, by and large
        ("bleu", [27.7, 20.1, 22.1], None),
        ("bleu", [0.0, 0.0], None),
        ("bleu", [0.061, 0.064], None),  # equal to the eye
        ("bleu", [27.7], None),
        ("aer", [None, None, 0.4], None),
        ("aer", [], None),
    ],
)
def test_still_improving(metric: str, values: list[float | None], note: str | None) -> None:
    assert still_improving([{metric: value} for value in values], metric, LONGER) == note


@pytest.mark.parametrize(
    ("losses", "begins"),
    [
        ([3.0, 2.0, 2.2], "the validation loss rose from 2.000 at update 20 to 2.200, "),
        ([3.0, 2.0, 2.05], None),  # less than 3%
        ([3.0, 2.0], None),
        ([None], None),
        ([], None),
    ],
)
def test_overfitting(losses: list[float | None], begins: str | None) -> None:
    note = overfitting([{"loss": loss, "step": 10 * number} for number, loss in enumerate(losses, start=1)])
    assert note is None if begins is None else note is not None and note.startswith(begins)


@pytest.mark.parametrize(
    ("losses", "begins"),
    [
        ([3.0, 250.0], "the validation loss is 250.000, and to guess any subword alike has at most 6.908: "),
        ([250.0, 3.0], None),
        ([7.8], None),
        ([None], None),
    ],
)
def test_diverged(losses: list[float | None], begins: str | None) -> None:
    note = diverged([{"loss": loss} for loss in losses], 1_000)
    assert note is None if begins is None else note is not None and note.startswith(begins)


@pytest.mark.parametrize(("bleu", "is_low"), [(0.01, True), (0.0, True), (1.0, False), (25.0, False), (None, False)])
def test_low_bleu(bleu: float | None, is_low: bool) -> None:
    assert (low_bleu(bleu, 12.0, LONGER) is not None) is is_low


def test_a_low_bleu_of_short_sentences_is_not_called_unlearned() -> None:
    assert (low_bleu(0.0, 59.0, LONGER) or "").endswith("set trainer.metric=chrf")
    assert (low_bleu(0.0, None, LONGER) or "").startswith("BLEU is 0.00, nothing has been learned")


@pytest.mark.parametrize(
    ("hypotheses", "note"),
    [
        (["a b", "c", "d", "x"], "3 of 4 translations are the source unchanged: look whether"),
        (["a  b ", "c", "d", "x"], "3 of 4"),  # spaces do not count
        (["a b", "c", "x", "x"], None),  # no more than half
        (["x", "x", "x", "x"], None),
    ],
)
def test_copies(hypotheses: list[str], note: str | None) -> None:
    found = copies(["a b", "c", "d", "e"], hypotheses)
    assert found is None if note is None else found is not None and found.startswith(note)


def test_an_empty_line_is_no_copy() -> None:
    assert copies(["", " ", "a b"], ["", "", "x"]) is None
    assert (copies(["", "a"], ["", "a"]) or "").startswith("1 of 1 translations")


@pytest.mark.parametrize(
    ("references", "tokenize", "is_told"),
    [
        (["猫3天后买红色自行车。", "老师早上卖掉红色自行车和小房子。"], "13a", True),
        (["猫3天后买红色自行车。", "老师早上卖掉红色自行车和小房子。"], "zh", False),
        (["Die Donaudampfschifffahrt beginnt in den Morgenstunden."], "13a", False),
        ([""], "13a", False),
        (["猫3天后买红色。 红色自行车和房子。"], "13a", True),
        (["猫 3 天 后 买 红色 自行车 。", "老师 早上 卖掉 红色 自行车 。"], "13a", False),
        (["ก็ อยาก ไป ที่นั่น กับ เพื่อน"], "13a", False),
    ],
)
def test_unspaced(references: list[str], tokenize: str, is_told: bool) -> None:
    assert (unspaced(references, tokenize) is not None) is is_told


@pytest.mark.parametrize(
    ("target", "language", "begins"),
    [
        ("a/train.de", "fr", "a/train.de seems to be de, but data.target_language=fr"),
        (["a.DE.gz", "b.fr"], "fr", "a.DE.gz seems to be de"),
        ("train.de", "de", None),
        ("train.zh", "zh_TW", None),
        ("train.de.txt", "fr", None),  # no code of a language
        ("train.tok", "fr", None),
        ("train", "fr", None),
        (None, "fr", None),
    ],
)
def test_a_file_of_another_language(target: str | list[str] | None, language: str, begins: str | None) -> None:
    note = other_language(DataConfig(kind="text", train=SplitConfig(target=target), target_language=language))
    assert note is None if begins is None else note is not None and note.startswith(begins)


def test_text_scored_as_words_is_not_called_unlearned(tmp_path: Path) -> None:
    """BLEU is near 0 for that reason, which only one of the two notes tells."""
    folder = tmp_path / "evaluation" / "test"
    folder.mkdir(parents=True)
    for tokenize, target, begins in (("13a", "猫3天后买红色自行车。", "the references"), ("13a", "le chat", "BLEU is")):
        (folder / "hypotheses.txt").write_text("a\n", encoding="utf-8")
        tests = {"test": datasets.Dataset.from_dict({"source": ["b"], "target": [target]})}
        scores = {"split": "test", "bleu": 0.1, "bleu_tokenize": tokenize}
        notes = training_notes(TrainConfig(run_dir=str(tmp_path)), 9_000, 8_000, scores, table(["c"]), tests)
        assert [note.startswith(begins) for note in notes] == [True]


def table(sources: list[str]) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"source": sources, "target": sources})


@pytest.mark.parametrize(
    ("train", "test", "note"),
    [
        (["a", "b", "b"], ["b", "c", "b", "d"], "2 of 4 test sentences (50%) stand in the training text too"),
        (["a", "b"], ["c", "d"], None),
        (["a"], ["a"] + [f"new {number}" for number in range(98)], "1 of 99"),
        (["a"], ["a"] + [f"new {number}" for number in range(200)], None),  # less than 1%
    ],
)
def test_overlap(train: list[str], test: list[str], note: str | None) -> None:
    found = overlap(table(train), test)
    assert found is None if note is None else found is not None and found.startswith(note)


def test_overlap_with_a_part_of_a_table() -> None:
    assert overlap(table(["a", "b"]).select([1]), ["a"]) is None


def test_a_run_is_read_from_its_folder(tmp_path: Path) -> None:
    """Everything wrong at once: each finding is one line."""
    records: list[dict[str, Any]] = [
        {"event": "train", "step": 5, "loss": 9.0},
        {"event": "validation", "step": 5, "loss": 2.0, "bleu": 0.1},
        {"event": "validation", "step": 9, "loss": 2.5, "bleu": 0.2},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    lines = "the cat\nthe\u2028dog\n"
    (tmp_path / "evaluation/test").mkdir(parents=True)
    for name in ("evaluation/test/hypotheses.txt", "source", "target"):
        (tmp_path / name).write_bytes(lines.encode())
    split = SplitConfig(source=str(tmp_path / "source"), target=str(tmp_path / "target"))
    data = DataConfig(kind="text", train=split, test=split, cache_dir=str(tmp_path / "cache"))
    config = TrainConfig(run_dir=str(tmp_path), data=data, trainer=TrainerConfig(max_epochs=1, max_minutes=2))
    train, tests = (load_split(data, split) for split in ("train", "test"))
    notes = training_notes(config, 9, 8_000, SCORES, train, {"test": tests})
    assert len(notes) == 6
    assert all("\n" not in note for note in notes)
    assert notes[0].endswith("train longer (trainer.max_minutes, trainer.max_epochs), or lower batch.size")
    assert len(training_notes(config, 9, 8_000, {}, train, {})) == 3


@pytest.mark.parametrize(("digests", "count"), [("aa", 2), ("ab", 0)])
def test_validations_with_other_text_are_not_compared(tmp_path: Path, digests: str, count: int) -> None:
    """The loss seems to have risen, and BLEU too."""
    values = zip((5, 9), (2.0, 2.5), (20.0, 30.0), digests, strict=True)
    lines = [
        json.dumps({"event": "validation", "step": step, "loss": loss, "bleu": bleu, "digest": digest})
        for step, loss, bleu, digest in values
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    assert len(training_notes(TrainConfig(run_dir=str(tmp_path)), 9_000, 8_000, {}, table(["c"]), {})) == count
