"""Evaluation of a split: its files, metrics, links and comparison."""

import html
import io
import json
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from rich.console import Console

from nmt.alignment.links import LinkRule
from nmt.alignment.weights import Alignment
from nmt.config.schema import SearchConfig
from nmt.data.tables import ProgressLog
from nmt.errors import UserError
from nmt.evaluation.baseline import baseline_of
from nmt.evaluation.evaluator import evaluate_split
from nmt.evaluation.output import pick
from nmt.evaluation.records import finite
from nmt.evaluation.registry import measure
from nmt.evaluation.report import print_table
from nmt.evaluation.views import AlignmentViews
from nmt.text.words import text_words
from nmt.translator import Translation
from tests.evaluation.capitals import GOLD, SOURCES, Capitals, corpus, diagonal, evaluate
from tests.evaluation.reported import alignments_in


def gold_in(folder: Path) -> list[Any]:
    """The gold links of each view of a report."""
    return [each.get("gold") for each in alignments_in((folder / "report.html").read_text()).values()]


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
                sentence.split(), [], nothing, source=sentence, text="", score=0.0, log_prob=0.0, pieces=[]
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


def printed(metrics: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=120)
    print_table(metrics, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


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


class Lowercase(Capitals):
    """The way back; it attends to the word of the same place as well, but in long sentences to the first alone."""

    def detokenize(self, lines: Sequence[str]) -> list[str]:
        return list(lines)

    def align(self, sources: Sequence[str], targets: Sequence[str], words: str = "spaces") -> list[Alignment]:
        aligned = super().align(sources, targets)
        return [
            Alignment(each.source_words, each.target_words, np.roll(each.weights, 1, axis=1))
            if len(each.source_words) > 4
            else each
            for each in aligned
        ]


class Thinking(Capitals):
    """Explains every word by the word of the same place and, half as much, by the one before it."""

    pairs = Capitals.align

    def translations(self, translations: Sequence[Translation]) -> list[Alignment]:
        blurred = [each.weights / 1.5 + np.roll(each.weights, -1, axis=1) / 3 for each in translations]
        return [
            Alignment(each.source_words, each.target_words, weights)
            for each, weights in zip(translations, blurred, strict=True)
        ]


def test_what_was_not_asked_for_is_null(tmp_path: Path) -> None:
    metrics = evaluate(tmp_path / "test")
    asked = ("saliency_aer", "saliency_attention_spearman", "saliency_attention_kendall", "intersection_aer", "reverse")
    assert [metrics[name] for name in asked] == [None] * 5
    assert (metrics["alignment_method"], metrics["alignment_threshold"]) == ("argmax", None)
    assert metrics["coverage_deficit"] == 0
    assert "aliency" not in printed(metrics)
    assert "coverage deficit" in printed(metrics)


def test_a_reverse_run_confirms_links(tmp_path: Path) -> None:
    folder = tmp_path / "test"
    metrics = evaluate(folder, views=AlignmentViews(reverse=Lowercase(), reverse_run="runs/b"))
    links = (folder / "alignments.intersection.pharaoh").read_text().split("\n")
    assert links == ["0-0 1-1", "0-0 1-1 2-2 3-3", "", "", "0-0", ""]
    assert (folder / "alignments.pharaoh").read_text().split("\n")[3] == GOLD[3]
    # 17 - 11 links are left, of which 0-0 1-1 twice are sure and 0?0 is possible.
    assert metrics["intersection_precision"] == pytest.approx(5 / 7)
    assert (metrics["aer"], metrics["reverse"]) == (evaluate(tmp_path / "alone")["aer"], "runs/b")
    assert "AER, intersection" in printed(metrics)
    evaluate(folder)
    assert not (folder / "alignments.intersection.pharaoh").exists()


def test_a_reverse_run_that_counts_other_words_confirms_nothing(tmp_path: Path) -> None:
    class Splitting(Capitals):
        def detokenize(self, lines: Sequence[str]) -> list[str]:
            return list(lines)

        def align(self, sources: Sequence[str], targets: Sequence[str], words: str = "spaces") -> list[Alignment]:
            return [Alignment(["x"] * 9, each.target_words, np.ones((len(each.target_words), 9)) / 9)
                    for each in super().align(sources, targets)]  # fmt: skip

    metrics = evaluate(tmp_path / "test", views=AlignmentViews(reverse=Splitting()))
    assert set((tmp_path / "test" / "alignments.intersection.pharaoh").read_text()) == {"\n"}
    assert (metrics["reverse_aer"], metrics["intersection_aer"]) == (None, None)


def test_saliency_is_scored_drawn_and_compared(tmp_path: Path) -> None:
    folder = tmp_path / "test"
    metrics = evaluate(folder, views=AlignmentViews(explainer=Thinking()), num_heatmaps=2)
    assert metrics["saliency_aer"] == metrics["aer"]
    assert 0 < metrics["saliency_attention_kendall"] < 1
    assert metrics["saliency_attention_spearman"] > 0.7
    page = (folder / "report.html").read_text()
    assert page.count("<nmt-alignment data-line=") == 2
    assert "Attention and saliency" in page
    widths = [int.from_bytes(path.read_bytes()[16:20], "big") for path in sorted((folder / "heatmaps").iterdir())]
    evaluate(folder, num_heatmaps=2)
    alone = [int.from_bytes(path.read_bytes()[16:20], "big") for path in sorted((folder / "heatmaps").iterdir())]
    assert all(wide > narrow for wide, narrow in zip(widths, alone, strict=True))
    text = printed(metrics)
    assert f"{metrics['saliency_attention_spearman']:.3f}" in text
    assert "AER, saliency" in text


def test_the_rule_makes_the_links(tmp_path: Path) -> None:
    class Hesitant(Capitals):
        def _translate(self, sentence: str) -> Translation:
            found = super()._translate(sentence)
            even = np.full_like(found.weights, 1 / max(1, len(found.source_words)))
            return Translation(**{**vars(found), "weights": (found.weights + even) / 2})

    metrics = evaluate(tmp_path / "test", Hesitant(), views=AlignmentViews(rule=LinkRule("threshold", 0.25)))
    assert (tmp_path / "test" / "alignments.pharaoh").read_text().startswith("0-0 0-1 1-0 1-1\n0-0 1-1 2-2 3-3\n")
    assert (metrics["alignment_method"], metrics["alignment_threshold"]) == ("threshold", 0.25)


class Apart(Capitals):
    """Its translations have punctuation apart, as those of `Translator`; what it aligns for gold has not."""

    def _translate(self, sentence: str) -> Translation:
        words = (text_words(sentence), text_words(sentence.upper()))
        weights = diagonal(len(words[1]), len(words[0]))
        return Translation(*words, weights, source=sentence, text=sentence.upper(), score=0.0, log_prob=0.0, pieces=[])


def evaluate_marks(folder: Path, **views: Any) -> dict[str, Any]:
    columns = {"source": ["aa bb.", "cc dd."], "target": ["AA BB.", "CC X."], "alignment": ["0-0 1-1", "0-0 1-1"]}
    return evaluate_split(
        Apart(), datasets.Dataset.from_dict(columns), folder, split="test", views=AlignmentViews(**views)
    )


def test_links_count_the_words_of_translations_and_error_rates_those_of_gold(tmp_path: Path) -> None:
    metrics = evaluate_marks(tmp_path / "test")
    assert (metrics["aer"], metrics["aer_sentences"], metrics["alignment_words"]) == (0, 2, "split")
    assert (tmp_path / "test" / "alignments.pharaoh").read_text() == "0-0 1-1 2-2\n" * 2
    assert (tmp_path / "test" / "alignments.words").read_text() == "aa bb . ||| AA BB .\ncc dd . ||| CC DD .\n"
    # Gold's links of `bb.` and `BB.` are drawn on the words and on the marks, where the translation is the reference.
    assert gold_in(tmp_path / "test") == [{"sure": [[0, 0], [1, 1], [2, 2]], "possible": []}, None]


@pytest.mark.parametrize("reads_pieces", [True, False])
def test_a_reverse_run_of_segmented_text_reads_pieces(reads_pieces: bool, tmp_path: Path) -> None:
    """Joined words are unknown to it. One of other subwords reads text."""
    read: list[Sequence[str]] = []

    class InPieces(Capitals):
        def translate(self, sentences: Sequence[str]) -> list[Translation]:
            return [replace(each, pieces=[f"{each.text[0]}@@", each.text[1:]]) for each in super().translate(sentences)]

    class Back(Capitals):
        def align(self, sources: Sequence[str], targets: Sequence[str], words: str = "spaces") -> list[Alignment]:
            read.append(sources)
            return super().align(sources, targets, words)

    corpus = datasets.Dataset.from_dict({"source": ["ab", "cd"], "target": ["AB", "XD"]})
    views = AlignmentViews(reverse=Back(), reverse_reads_pieces=reads_pieces)
    evaluate_split(InPieces(), corpus, tmp_path / "test", split="test", views=views)
    assert read == [["A@@ B", "C@@ D"] if reads_pieces else ["AB", "CD"]]


def test_a_reverse_run_with_other_words_of_the_same_text_confirms_links(tmp_path: Path) -> None:
    class Back(Capitals):
        """Aligns back with `.` in the word before it, to which all others look."""

        def align(self, sources: Sequence[str], targets: Sequence[str], words: str = "spaces") -> list[Alignment]:
            asked.append(words)
            return [
                Alignment(source.split(), target.split(), np.array([[0.0, 1.0], [0.0, 1.0]]))
                for source, target in zip(sources, targets, strict=True)
            ]

        def detokenize(self, lines: Sequence[str]) -> list[str]:
            return list(lines)

    asked: list[str] = []
    evaluate_marks(tmp_path / "test", reverse=Back())
    assert asked == ["spaces", "split"]  # for gold, and beside the translations
    # Shares of `BB.` are even over its characters, most of them in `BB`, which is taken for `bb` and for the period.
    assert (tmp_path / "test" / "alignments.intersection.pharaoh").read_text() == "1-1\n" * 2


def test_a_reverse_run_of_segmented_text_confirms_links_of_a_copy(tmp_path: Path) -> None:
    """It reads the unknown piece, and the words are those of the copy, here cut into characters."""

    class Copying(Capitals):
        def _translate(self, sentence: str) -> Translation:
            source, target = (["自", "行", "车", word] for word in ("ab", "AB"))
            pieces = ["<unk>", "AB"]
            return Translation(source, target, np.eye(4), sentence, "自行车 AB", 0.0, 0.0, pieces)

    class Back(Capitals):
        def align(self, sources: Sequence[str], targets: Sequence[str], words: str = "spaces") -> list[Alignment]:
            assert (sources, targets) == (["<unk> AB"], ["自行车 ab"])
            weights = np.array([[1.0, 0.0]] * 3 + [[0.0, 1.0]])
            return [Alignment(["<unk>", "AB"], ["自", "行", "车", "ab"], weights)]

    corpus = datasets.Dataset.from_dict({"source": ["自行车 ab"], "target": ["X AB"]})
    views = AlignmentViews(reverse=Back(), reverse_reads_pieces=True)
    evaluate_split(Copying(), corpus, tmp_path / "test", split="test", views=views)
    assert (tmp_path / "test" / "alignments.intersection.pharaoh").read_text() == "0-0 3-3\n"
