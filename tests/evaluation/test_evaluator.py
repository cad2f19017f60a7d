"""Evaluation of a split: its files, metrics and comparison."""

import html
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from nmt.alignment.weights import Alignment
from nmt.config.schema import SearchConfig
from nmt.data.tables import ProgressLog
from nmt.errors import UserError
from nmt.evaluation.baseline import baseline_of
from nmt.evaluation.evaluator import evaluate_split
from nmt.evaluation.output import pick
from nmt.evaluation.records import finite
from nmt.evaluation.registry import measure
from nmt.translator import Translation
from tests.evaluation.capitals import GOLD, SOURCES, Capitals, corpus, evaluate
from tests.evaluation.reported import gold_in, printed


def test_every_file_of_the_contract_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "evaluation" / "test"
    metrics = evaluate(folder)
    assert {path.name for path in folder.iterdir()} == {
        *("metrics.json", "hypotheses.txt", "alignments.pharaoh", "alignments.words", "report.html", "heatmaps")
    }
    assert json.loads((folder / "metrics.json").read_text()) == metrics
    assert (folder / "hypotheses.txt").read_text().split("\n") == ["A B", "A B C D", "", "C" + " C" * 10, "B", ""]
    links = (folder / "alignments.pharaoh").read_text().split("\n")
    assert links == ["0-0 1-1", "0-0 1-1 2-2 3-3", "", GOLD[3], "0-0", ""]
    assert [path.name for path in sorted((folder / "heatmaps").iterdir())] == [f"0000{n}.png" for n in (1, 2, 4, 5)]
    assert (folder / "report.html").read_text().count("<nmt-alignment data-line=") == 4
    assert list(folder.parent.iterdir()) == [folder]


def test_metrics_are_those_of_the_contract(tmp_path: Path) -> None:
    metrics = evaluate(tmp_path / "test")
    # 17 links proposed, 17 sure ones and a possible one: two of the proposed are wrong.
    assert metrics["aer"] == pytest.approx(1 - (15 + 16) / (18 + 17))
    assert metrics["alignment_precision"] == pytest.approx(16 / 18)
    assert metrics["alignment_recall"] == pytest.approx(15 / 17)
    assert metrics["ter"] == pytest.approx(100 * 1 / 18)
    assert metrics["attention_entropy"] == 0
    assert metrics["repetition_rate"] == metrics["reference_repetition_rate"] == pytest.approx(10 / 18)
    assert [each["sentences"] for each in metrics["bleu_by_length"]] == [3, 1]
    known = {
        "search_errors": 2,
        "sentences": 5,
        "aer_sentences": 5,
        "split": "test",
        "step": 70,
        "beam_size": 3,
        "length_penalty": 0.5,
        "checkpoint": "runs/a/checkpoints/best",
        "bleu_tokenize": "13a",
        "lowercase": False,
        "coverage_penalty": 0.0,
        "max_length_ratio": 2.0,
        "max_length_offset": 20,
        "replace_unknown": False,
        "batch_size": 64,
        "precision": "fp32",
        "device": "cpu",
    }
    assert {name: metrics[name] for name in known} == known
    assert set(metrics["signature"]) == {"bleu", "bleu_ci95", "chrf", "ter"}
    assert metrics["bleu_ci95"][0] <= metrics["bleu"] <= metrics["bleu_ci95"][1]
    assert metrics["seconds"] >= 0


def test_scoring_options_reach_every_score(tmp_path: Path) -> None:
    metrics = evaluate(tmp_path / "test", bleu_tokenize="char", lowercase=True)
    assert all("case:lc" in metrics["signature"][name] for name in ("bleu", "chrf", "ter"))
    assert "tok:char" in metrics["signature"]["bleu"]
    assert (metrics["bleu_tokenize"], metrics["lowercase"]) == ("char", True)


class Joining(Capitals):
    """Has learned from text that was segmented already."""

    def detokenize(self, lines: Sequence[str]) -> list[str]:
        return [line.replace("@@ ", "") for line in lines]


def test_segmented_references_are_joined_before_they_are_scored(tmp_path: Path) -> None:
    rows = {"source": ["abcd b c d e f"], "target": ["AB@@ CD B C D E F"]}
    rows["alignment"] = ["0-0 0-1 1-2"]
    metrics = evaluate_split(Joining(), datasets.Dataset.from_dict(rows), tmp_path / "test", split="test")
    assert metrics["bleu"] == pytest.approx(100.0)
    # Gold counts the pieces, and so is not drawn on the words.
    assert gold_in(tmp_path / "test") == [None]
    rows |= {"target": ["ABCD B C D E F"], "alignment": ["0-0"]}
    evaluate_split(Joining(), datasets.Dataset.from_dict(rows), tmp_path / "test", split="test")
    assert gold_in(tmp_path / "test") == [{"sure": [[0, 0]], "possible": []}]


def test_without_gold_there_is_no_error_rate(tmp_path: Path) -> None:
    metrics = evaluate(tmp_path / "test", gold=None)
    assert (metrics["aer"], metrics["aer_sentences"]) == (None, 0)
    assert "no gold alignments" in (tmp_path / "test" / "report.html").read_text()


def test_error_rate_is_that_of_the_references_whatever_was_translated(tmp_path: Path) -> None:
    right, wrong = evaluate(tmp_path / "a"), evaluate(tmp_path / "b", Capitals(" X"))
    assert wrong["bleu"] < right["bleu"]
    assert wrong["aer"] == right["aer"]


def test_gold_speaks_of_words_between_spaces(tmp_path: Path) -> None:
    class Splitting(Capitals):
        def detokenize(self, lines: Sequence[str]) -> list[str]:
            return list(lines)

        def align(self, sources: Sequence[str], targets: Sequence[str], words: str = "spaces") -> list[Alignment]:
            first, *rest = super().align(sources, targets)
            return [Alignment(["a", "b", "!"], first.target_words, np.ones((2, 3)) / 3), *rest]

    metrics = evaluate(tmp_path / "test", Splitting())
    assert (metrics["aer_sentences"], metrics["gold_sentences"]) == (4, 5)
    assert "lower is better; 4 of 5 pairs" in printed(metrics)

    class Shattering(Capitals):
        def align(self, sources: Sequence[str], targets: Sequence[str], words: str = "spaces") -> list[Alignment]:
            return [Alignment(["!"] * 99, [], np.zeros((0, 99))) for _ in sources]

    metrics = evaluate(tmp_path / "test", Shattering())
    assert metrics["aer"] is None
    for shown in (printed(metrics), html.unescape((tmp_path / "test" / "report.html").read_text())):
        assert "gold alignments, but in none of 5 pairs are the model's words those between spaces" in shown
        assert "no gold alignments" not in shown


def test_an_older_evaluation_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "test"
    evaluate(folder, Capitals(" X"), num_heatmaps=4)
    (folder / "notes.txt").write_text("mine")
    evaluate(folder, num_heatmaps=1)
    assert (folder / "hypotheses.txt").read_text().startswith("A B\n")
    assert len(list((folder / "heatmaps").iterdir())) == 1
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_line_break_in_a_translation_stays_in_its_line(tmp_path: Path) -> None:
    evaluate(tmp_path / "test", Capitals("\nX\r\u2028Y"))
    lines = (tmp_path / "test" / "hypotheses.txt").read_bytes().decode().split("\n")
    assert len(lines) == len(SOURCES) + 1
    assert lines[0] == "A B X \u2028Y"


def test_a_model_that_says_nothing_has_finite_metrics(tmp_path: Path) -> None:
    class Silent(Capitals):
        def _translate(self, sentence: str) -> Translation:
            nothing = np.zeros((0, len(sentence.split())))
            return Translation(
                sentence.split(),
                [],
                nothing,
                source=sentence,
                text="",
                score=0.0,
                log_prob=0.0,
                pieces=[],
                words=([], []),
            )

    metrics = evaluate(tmp_path / "test", Silent())
    assert (metrics["bleu"], metrics["attention_entropy"], metrics["repetition_rate"]) == (0, None, None)
    assert "NaN" not in (tmp_path / "test" / "metrics.json").read_text()
    assert finite({"a": [float("nan"), 1.0], "b": (float("inf"),)}) == {"a": [None, 1.0], "b": [None]}


def test_a_comparison_names_the_baseline_and_its_settings(tmp_path: Path) -> None:
    other = Capitals(" X")
    other.search, other.step = SearchConfig(beam_size=7, coverage_penalty=0.2), 60
    metrics = evaluate(tmp_path / "test", baseline=baseline_of(tmp_path / "other", other, corpus()))
    compared = metrics["baseline"]
    assert (compared["run"], compared["beam_size"], compared["step"]) == (str(tmp_path / "other"), 7, 60)
    assert compared["bleu"]["difference"] == pytest.approx(metrics["bleu"] - compared["bleu"]["baseline"])
    assert compared["bleu"]["difference"] > 0
    page, text = (tmp_path / "test" / "report.html").read_text(), printed(metrics)
    assert "Compared with" in page
    assert "difference" in text
    for shown in (page, text):
        assert "beam 7 · length penalty 1.0 · coverage penalty 0.2 · at most 2 x source + 20 subwords · fp32" in shown
        assert "step 60" in shown


def test_heatmaps_spread_over_lengths_that_can_be_read() -> None:
    translations = Capitals().translate(["w " * n for n in (70, 3, 0, 60, 1, 2, 30, 61)])
    assert pick(translations, 3) == [4, 1, 3]
    assert pick(translations, 100) == [4, 5, 1, 6, 3]
    assert pick(translations, 0) == pick(translations[:1], 5) == []


def test_table_has_scores_and_settings(tmp_path: Path) -> None:
    metrics = evaluate(tmp_path / "test")
    text = printed(metrics)
    assert f"{metrics['bleu']:.2f}" in text
    assert metrics["signature"]["bleu"] in text
    assert "beam 3 · length penalty 0.5 · at most 2 x source + 20 subwords · fp32 · checkpoint runs/a" in text
    assert "checkpoint runs/a/checkpoints/best, step 70" in text


def test_scoring_that_takes_long_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """TER takes seconds for a line of a hundred words that repeat."""

    def slow(*arguments: Any) -> Any:
        time.sleep(0.3)
        return measure(*arguments)

    monkeypatch.setattr("nmt.evaluation.evaluator.measure", slow)
    monkeypatch.setattr("nmt.data.tables.MIN_LOGGED_SECONDS", 0.1)
    monkeypatch.setattr(ProgressLog, "last_message", -math.inf)
    with caplog.at_level("INFO"):
        evaluate(tmp_path / "test")
    assert caplog.messages[0] == "scoring: 0 s"


def test_a_missing_tokenizer_is_told_before_translating(tmp_path: Path) -> None:
    translator = Capitals()
    with pytest.raises(UserError, match="bleu_tokenize=ja-mecab is not available here"):
        evaluate(tmp_path / "test", translator, bleu_tokenize="ja-mecab")
    assert translator.translated == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [("0-0 1:1", "gold alignment of test line 2: '1:1' is not"), ("4-0", "line 2: link 4-0 points outside the pair")],
)
def test_wrong_gold_is_found_before_translating(tmp_path: Path, line: str, message: str) -> None:
    translator = Capitals()
    with pytest.raises(UserError, match=message):
        evaluate(tmp_path / "test", translator, gold=[GOLD[0], line, *GOLD[2:]])
    assert translator.translated == 0


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write the evaluation to .*: Not a directory"):
        evaluate(tmp_path / "file" / "test")


def test_an_empty_corpus(tmp_path: Path) -> None:
    empty = datasets.Dataset.from_dict({"source": [], "target": []})
    with pytest.raises(UserError, match="nothing to score"):
        evaluate_split(Capitals(), empty, tmp_path, split="test")
