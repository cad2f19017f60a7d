import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from nmt.alignment.pharaoh import Links
from nmt.alignment.weights import Alignment
from nmt.evaluation.registry import format_number, gold_note
from nmt.evaluation.report import (
    Sentence,
    alignment_data,
    mark_differences,
    render_report,
    summary,
)
from tests.evaluation.reported import alignments_in, metrics

VOID = {"meta", "input", "br"}
ROWS = [
    Sentence(1, "a <b>bold</b> cat", '</script><script>alert("x")</script>', "un chat & co", 12.3456),
    Sentence(2, "dogs", "des chiens", "des chiens", 100.0),
]


class Reader(HTMLParser):
    """Checks that tags are balanced and keeps the text of cells and what is asked of other places."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.links: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.links += [str(value) for name, value in attributes if name in ("src", "href")]
        self.scripts += tag == "script"
        if tag == "td":
            self.cells.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        pass

    def handle_data(self, data: str) -> None:
        if "td" in self.open:
            self.cells[-1] += data


def read(**changes: Any) -> Reader:
    reader = Reader()
    reader.feed(render_report(metrics(**changes), ROWS, ROWS[:1], title="A & B"))
    assert reader.open == []
    return reader


def test_page_is_whole_and_text_is_only_text() -> None:
    reader = read()
    assert reader.scripts == 1
    assert reader.cells[:10] == [field if isinstance(field, str) else f"{field:.4g}" for field in (
        *(1, ROWS[0].source, ROWS[0].hypothesis, ROWS[0].reference, "12.3"),
        *(2, "dogs", "des chiens", "des chiens", "100.0"),
    )]  # fmt: skip


def test_page_needs_nothing_beside_it() -> None:
    page = render_report(metrics(), ROWS, [], title="t")
    assert read().links == []
    assert not re.search(r"https?:|@import|url\(", page)


def test_no_number_without_its_settings() -> None:
    cells = read().cells
    settings = dict(zip(cells[10::2], cells[11::2], strict=True))
    assert settings["beam_size"] == "5"
    assert settings["lowercase"] == "false"
    assert settings["checkpoint"] == "runs/<a>/best"
    assert settings["signature of bleu"] == "tok:13a|version:2"
    assert summary(metrics()).endswith(
        "beam 5 · length penalty 1.0 · at most 2 x source + 20 subwords · fp32 · checkpoint runs/<a>/best, step 1200"
    )
    assert "length penalty 1.0 · coverage penalty 0.2 · at most" in summary(metrics(coverage_penalty=0.2))
    assert "20 subwords · unknown words copied · fp32" in summary(metrics(replace_unknown=True))
    near = summary(metrics(neighbors=32, neighbor_weight=0.3, neighbor_temperature=0.25))
    assert "20 subwords · 32 neighbors, weight 0.3, temperature 0.25 · fp32" in near
    assert "20 subwords · fp32" in summary(metrics(neighbors=0, neighbor_weight=0.3, neighbor_temperature=0.25))
    assert summary(metrics(ensemble=["runs/b/best"])).endswith("step 1200 · with runs/b/best")


def test_comparison_shows_sign_and_p_value() -> None:
    test = {"baseline": 30.0, "difference": -1.5, "p_value": 0.0123}
    cells = read(baseline={**metrics(), "run": "other", "bleu": test, "chrf": test}).cells
    assert cells[4:8] == ["BLEU", "30.0", "-1.50", "0.0123"]


def test_rows_sort_by_value() -> None:
    page = render_report(metrics(), ROWS, [], title="t")
    assert 'data-value="12.3456"' in page
    assert "localeCompare" in page


def test_empty_parts_are_left_out() -> None:
    page = render_report(metrics(bleu_by_length=[], aer=0.125), ROWS, [], title="t")
    assert "Attention</h2>" not in page
    assert "Compared with" not in page
    assert "0.125" in page


@pytest.mark.parametrize(
    ("hypothesis", "reference", "marked"),
    [
        ("a b c", "a b c", "a b c"),
        ("a x c", "a b c", "a <mark>x</mark> c"),
        ("c a", "a c", "c <mark>a</mark>"),
        ("<i>", "", "<mark>&lt;i&gt;</mark>"),
        ("", "a", ""),
        ("a cat.", "a cat, dog.", "a cat."),
        ("a  cat!", "a cat.", "a  cat<mark>!</mark>"),
        ("猫买书。", "猫卖书。", "猫<mark>买</mark>书。"),
    ],
)
def test_differences_are_marked(hypothesis: str, reference: str, marked: str) -> None:
    assert mark_differences(hypothesis, reference)[0] == marked


@pytest.mark.parametrize(
    ("scored", "gold", "note"),
    [
        (0, 0, "no gold alignments"),
        (0, 7, "gold alignments, but in none of 7 pairs"),
        (5, 7, "lower is better; 5 of 7 pairs"),
        (7, 7, "lower is better"),
    ],
)
def test_an_error_rate_says_what_it_is_of(scored: int, gold: int, note: str) -> None:
    found = gold_note(metrics(aer_sentences=scored, gold_sentences=gold))
    assert found.startswith(note)
    assert (found == note) == (scored == gold or scored > 0)


def test_number() -> None:
    assert format_number(None) == "–"
    assert format_number(1.26) == "1.3"


def test_saliency_stands_beside_attention() -> None:
    words = Alignment(["a"], ["b"], np.ones((1, 1)))
    both = {1: alignment_data(words, words, None)}
    further = {"saliency_aer": 0.25, "saliency_attention_spearman": 0.4321, "intersection_aer": None}
    page = render_report(metrics(**further), ROWS, ROWS[:1], title="t", alignments=both)
    assert "<h2>Attention and saliency</h2>" in page
    assert "AER, saliency<b>0.250</b>" in page
    assert "<b>0.432</b>" in page
    assert "intersection" not in page
    alone = render_report(metrics(), ROWS, ROWS[:1], title="t")
    assert "<h2>Attention</h2>" in alone
    assert "aliency" not in alone
    assert "Coverage deficit<b>0.25</b>" in alone


def test_the_worst_stand_first() -> None:
    rows = [Sentence(n, "s", "h", "r", chrf) for n, chrf in enumerate((50.0, 10.0, 90.0, 10.0), start=1)]
    reader = Reader()
    reader.feed(render_report(metrics(), rows, [], title="t"))
    assert reader.cells[0:20:5] == ["2", "4", "1", "3"]


@pytest.mark.parametrize(
    ("reference", "hypothesis", "marked"),
    [
        ("a b c", "a b c", "a b c"),
        ("a b c", "a c", "a <mark class=missing>b</mark> c"),
        ("<i>", "", "<mark class=missing>&lt;i&gt;</mark>"),
        ("猫买书。", "猫买车。", "猫买<mark class=missing>书</mark>。"),
    ],
)
def test_words_that_a_translation_lacks_are_marked(reference: str, hypothesis: str, marked: str) -> None:
    assert mark_differences(hypothesis, reference)[1] == marked


def test_what_both_sides_agree_on_is_the_same() -> None:
    sides = mark_differences("a b a c", "b a a")
    kept = [re.sub(r" *<mark[^>]*>.*?</mark> *", " ", side).split() for side in sides]
    assert kept[0] == kept[1] != []


def test_a_baseline_stands_beside_each_translation() -> None:
    rows = [
        Sentence(1, "s", "x", "r", 10.0, "<y>", 30.0),
        Sentence(2, "s", "x", "r", 40.0, "y", 30.0),
        Sentence(3, "s", "x", "r", 50.0, "y", 50.0),
    ]
    page = render_report(metrics(), rows, [], title="t")
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    assert reader.cells[:7] == ["1", "s", "x", "<y>", "r", "10.0", "-20.0"]
    assert [reader.cells[row * 7 + 6] for row in range(3)] == ["-20.0", "+10.0", "+0.0"]
    assert [option in page for option in (">1 wins<", ">1 losses<", ">1 equal<", ">all 3 sentences<")] == [True] * 4
    assert page.count('class="win"') == page.count('class="loss"') == page.count('class="tie"') == 1
    assert "wins" not in render_report(metrics(), ROWS, [], title="t")


def test_a_row_has_the_data_of_its_view() -> None:
    words = Alignment(["a", "</script>"], ["b"], np.array([[0.256, 0.744]]))
    data = alignment_data(words, None, Links(frozenset({(0, 0)}), frozenset({(0, 0)})))
    assert data["matrices"] == {"weights": [[256, 744]]}
    page = render_report(metrics(), ROWS, [], title="t", alignments={2: data})
    reader = Reader()
    reader.feed(page)
    assert (reader.open, reader.scripts, page.count("</script>")) == ([], 1, 1)
    assert page.count("aria-expanded=false") == 1
    assert not re.search(r"https?:|@import|url\(", page)
    assert alignments_in(page)["2"] == json.loads(json.dumps(data))
