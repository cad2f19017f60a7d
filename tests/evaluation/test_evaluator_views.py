"""Evaluation of a split by more than its attention: reverse runs, saliency, rules that make links, other words."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from nmt.alignment.weights import Alignment
from nmt.config.schema import WORDS, LinksConfig
from nmt.evaluation.evaluator import evaluate_split
from nmt.evaluation.views import AlignmentViews
from nmt.text.words import text_words
from nmt.translator import Translation
from tests.evaluation.capitals import GOLD, Capitals, diagonal, evaluate
from tests.evaluation.reported import gold_in, printed


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

    metrics = evaluate(
        tmp_path / "test", Hesitant(), views=AlignmentViews(links=LinksConfig(method="threshold", threshold=0.25))
    )
    assert (tmp_path / "test" / "alignments.pharaoh").read_text().startswith("0-0 0-1 1-0 1-1\n0-0 1-1 2-2 3-3\n")
    assert (metrics["alignment_method"], metrics["alignment_threshold"]) == ("threshold", 0.25)


class Apart(Capitals):
    """Its translations have punctuation apart, as those of `Translator`; what it aligns for gold has not."""

    def _translate(self, sentence: str) -> Translation:
        words = (text_words(sentence), text_words(sentence.upper()))
        weights = diagonal(len(words[1]), len(words[0]))
        return Translation(
            *words, weights, source=sentence, text=sentence.upper(), score=0.0, log_prob=0.0, pieces=[], words=([], [])
        )


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
            return [
                replace(each, pieces=[f"{each.text[0]}@@", each.text[1:]], words=([each.text], [0, 0]))
                for each in super().translate(sentences)
            ]

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
    """It reads the unknown piece, and the words are those of the copy, here cut into characters as another is."""

    class Copying(Capitals):
        def _translate(self, sentence: str) -> Translation:
            source, target = ["自", "行", "车", "ab"], list("自行车喜欢")
            weights = np.eye(4)[[0, 1, 2, 3, 3]]
            words = ["自行车", "喜欢"], [0, 1]
            return Translation(source, target, weights, sentence, "自行车 喜欢", 0.0, 0.0, ["<unk>", "喜欢"], words)

    class Back(Capitals):
        def align(self, sources: Sequence[str], targets: Sequence[str], words: str = "spaces") -> list[Alignment]:
            assert (sources, targets) == (["<unk> 喜欢"], ["自行车 ab"])
            weights = np.array([[1.0, 0.0, 0.0]] * 3 + [[0.0, 0.5, 0.5]])
            return [Alignment(["<unk>", "喜", "欢"], ["自", "行", "车", "ab"], weights)]

    corpus = datasets.Dataset.from_dict({"source": ["自行车 ab"], "target": ["X 喜欢"]})
    views = AlignmentViews(reverse=Back(), reverse_reads_pieces=True)
    evaluate_split(Copying(), corpus, tmp_path / "test", split="test", views=views)
    assert (tmp_path / "test" / "alignments.intersection.pharaoh").read_text() == "0-0 3-3\n"


@pytest.mark.parametrize("words", WORDS)
def test_a_reverse_run_of_segmented_text_confirms_links_of_joined_words(words: str, tmp_path: Path) -> None:
    """`spaces` of its source would be pieces, and those of a translation are words."""

    class InPieces(Capitals):
        def translate(self, sentences: Sequence[str]) -> list[Translation]:
            found = super().translate(sentences)
            return [replace(each, pieces=["A@@", "B"], words=(["AB"], [0, 0])) for each in found]

    class Back(Capitals):
        def align(self, sources: Sequence[str], targets: Sequence[str], words: str = "spaces") -> list[Alignment]:
            read = sources[0].split() if words == "spaces" else ["AB"]
            return [Alignment(read, ["ab"], np.ones((1, len(read))))]

    corpus = datasets.Dataset.from_dict({"source": ["ab"], "target": ["A@@ X"]})
    views = AlignmentViews(links=LinksConfig(words=words), reverse=Back(), reverse_reads_pieces=True)
    evaluate_split(InPieces(), corpus, tmp_path / "test", split="test", views=views)
    assert (tmp_path / "test" / "alignments.intersection.pharaoh").read_text() == "0-0\n"
