"""The report in a browser: rows open, sort and filter."""

from pathlib import Path

import numpy as np
import pytest

from nmt.alignment.weights import Alignment
from nmt.evaluation.report import Sentence, alignment_data, render_report
from tests.browser import Browser
from tests.evaluation.reported import metrics

WORDS = Alignment(["القطة", "b"], ["x", "<i>"], np.array([[0.9, 0.1], [0.2, 0.8]]))
ROWS = [
    Sentence(1, "القطة b", "x <i>", "x y", 50.0, "x", 60.5),
    Sentence(2, "b", "x", "x", 100.0, "y", 0.0),
    Sentence(3, "c", "z", "y", 5.0, "y", 100.0),
]


@pytest.fixture
def report(browser: Browser, tmp_path: Path) -> Browser:
    browser.show()
    alignments = {1: alignment_data(WORDS, WORDS, None), 2: alignment_data(WORDS, None, None)}
    browser.open_html(render_report(metrics(), ROWS, ROWS[:1], title="t", alignments=alignments), tmp_path)
    browser.errors.clear()
    return browser


def lines(browser: Browser) -> list[str]:
    shown = "[...document.querySelectorAll('.sentences tbody tr:not([hidden])')]"
    return list(browser.run(f"{shown}.filter(row => !row.querySelector('.view')).map(row => row.cells[0].textContent)"))


def test_heatmaps_are_drawn_with_their_sentences(report: Browser) -> None:
    assert report.run("document.querySelectorAll('figure .nmt-map').length") == 2
    assert report.run("document.querySelector('figure .nmt-source').textContent") == "القطة b"
    assert report.run("getComputedStyle(document.querySelector('figure .nmt-fallback')).display") == "none"
    assert report.errors == []


def test_a_row_opens_its_view_and_closes_it(report: Browser) -> None:
    report.click(".sentences tbody tr:nth-child(2) td:nth-child(3)")
    assert report.run("document.querySelectorAll('.view .nmt-map').length") == 2
    assert report.run("document.querySelector('.view .nmt-target').textContent") == "x <i>"
    report.hover(".view .nmt-target .nmt-word")
    assert report.run("document.querySelector('.nmt-lit').style.getPropertyValue('--nmt-weight')") == "90%"
    report.click(".sentences tbody tr:nth-child(2) td:nth-child(3)")
    assert report.run("document.querySelectorAll('.view').length") == 0
    report.click(".sentences tbody tr:nth-child(1) td:nth-child(3)")  # it has no data
    assert report.run("document.querySelectorAll('.view').length") == 0
    report.run("document.querySelector('.sentences tbody tr:nth-child(3)').focus()")
    report.key("Enter")
    assert report.run("document.querySelectorAll('.view .nmt-map').length") == 1
    assert report.errors == []


def test_rows_sort_by_score_and_difference(report: Browser) -> None:
    sorts = "[...document.querySelectorAll('th[aria-sort]')].map(head => `${head.textContent} ${head.ariaSort}`)"
    assert lines(report) == ["3", "1", "2"]
    assert report.run(sorts) == ["chrF ascending"]  # as its arrow says
    report.click(".sentences tbody tr:nth-child(2) td:nth-child(3)")
    report.click(".sentences th:nth-child(7)")
    assert report.run(sorts) == ["difference ascending"]
    assert lines(report) == ["3", "1", "2"]  # -95, -10.5, +100: by value, not as text
    report.click(".sentences th:nth-child(7)")
    assert lines(report) == ["2", "1", "3"]
    report.click(".sentences th:nth-child(1)")
    assert lines(report) == ["1", "2", "3"]


def test_wins_losses_and_words_are_found(report: Browser) -> None:
    report.run("outcome.value = 'loss'; outcome.dispatchEvent(new Event('input'))")
    assert lines(report) == ["3", "1"]
    hidden = "getComputedStyle(document.querySelector('.sentences tbody tr[hidden]')).display"
    assert report.run(hidden) == "none"
    report.show(400, 800)  # where rows are blocks
    assert report.run(hidden) == "none"
    report.show()
    report.run("document.querySelector('#filter').focus()")
    report.type("القطة")
    assert lines(report) == ["1"]


def test_a_phone_shows_rows_as_cards(report: Browser) -> None:
    report.show(390, 800)
    report.click(".sentences tbody tr:nth-child(2)")
    assert report.run("document.documentElement.scrollWidth") <= 390
    right = "getComputedStyle(document.querySelector('.sentences tbody tr:nth-child(2) td:nth-child(2)')).direction"
    assert report.run(right) == "rtl"
