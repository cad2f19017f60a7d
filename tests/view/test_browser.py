"""The view in a browser: what lights up, by pointer and by keyboard, and what is not run."""

import json
from pathlib import Path

import numpy as np
import pytest

from nmt.view.alignment import alignment_html, round_weights
from tests.browser import Browser
from tests.view.viewed import viewed

WEIGHTS = np.array([[0.9, 0.1, 0.0], [0.0, 0.3, 0.7]])
ALT, CTRL, META = 1, 2, 4  # of the DevTools protocol
HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(1)</script>"


def page(*fragments: str) -> str:
    return f"<!DOCTYPE html><meta charset=utf-8><meta name=viewport content='width=device-width'>{''.join(fragments)}"


def lit(browser: Browser) -> dict[str, str]:
    """The words that are lit, each with its weight."""
    words = "[...document.querySelectorAll('.nmt-lit')]"
    found = browser.run(f"{words}.map(word => [word.textContent, word.style.getPropertyValue('--nmt-weight')])")
    return dict(found)


def test_pointing_at_a_word_lights_its_partners(browser: Browser, tmp_path: Path) -> None:
    browser.show()
    browser.open_html(
        page(alignment_html(viewed(["a", "b", "c"], ["x", "y"], WEIGHTS, saliency=round_weights(WEIGHTS[::-1])))),
        tmp_path,
    )
    browser.hover(".nmt-target .nmt-word")
    assert lit(browser) == {"a": "90%", "b": "10%"}
    browser.hover(".nmt-source .nmt-word:nth-child(2)")
    assert lit(browser) == {"x": "10%", "y": "30%"}
    told = browser.run("document.querySelector('.nmt-caption').textContent")
    assert "y 30 %" in told.translate({0x2068: None, 0x2069: None})
    browser.click(".nmt-map:nth-child(2) .nmt-title")
    browser.hover(".nmt-target .nmt-word")
    assert lit(browser) == {"b": "30%", "c": "70%"}
    assert browser.errors == []


def test_keys_walk_through_words(browser: Browser, tmp_path: Path) -> None:
    browser.open_html(page(alignment_html(viewed(["a", "b", "c"], ["x", "y"], WEIGHTS))), tmp_path)
    browser.run("document.querySelector('.nmt-target .nmt-word').focus()")
    browser.run("document.addEventListener('nmt-target', event => (window.chosen = event.detail.index))")
    browser.key("ArrowRight")
    assert lit(browser) == {"b": "30%", "c": "70%"}
    browser.key("Enter")
    assert browser.run("window.chosen") == 1
    browser.key("ArrowUp")  # to the strongest partner
    assert browser.run("document.activeElement.textContent") == "c"
    browser.key("Home")
    assert browser.run("document.activeElement.textContent") == "a"


def test_keys_of_the_browser_are_left_to_it(browser: Browser, tmp_path: Path) -> None:
    browser.open_html(page(alignment_html(viewed(["a", "b", "c"], ["x", "y"], WEIGHTS))), tmp_path)
    browser.run("document.querySelector('.nmt-source .nmt-word').focus()")
    browser.run("addEventListener('keydown', event => (window.taken = event.defaultPrevented))")
    for modifier in (ALT, CTRL, META):
        browser.key("ArrowRight", modifiers=modifier)
        assert browser.run("[window.taken, document.activeElement.textContent]") == [False, "a"]


def test_data_is_replaced_while_a_word_has_the_focus(browser: Browser, tmp_path: Path) -> None:
    browser.errors.clear()
    browser.open_html(page(alignment_html(viewed(["a", "b", "c"], ["x", "y"], WEIGHTS))), tmp_path)
    browser.run("document.querySelector('.nmt-target .nmt-word').focus()")
    other = json.dumps(viewed(["d", "e", "f"], ["v", "w"], WEIGHTS))
    browser.run(f"document.querySelector('nmt-alignment').data = {other}")
    assert browser.run("document.querySelector('.nmt-target').textContent") == "v w"
    assert browser.errors == []


def test_text_is_never_markup(browser: Browser, tmp_path: Path) -> None:
    browser.open_html(page(alignment_html(viewed([HOSTILE, "b\x00"], [HOSTILE], np.array([[0.5, 0.5]])))), tmp_path)
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("document.querySelector('.nmt-word').textContent") == HOSTILE
    assert browser.run("document.querySelector('.nmt-source').textContent") == f"{HOSTILE} b\ufffd"
    browser.hover(".nmt-word")
    assert browser.errors == []


def test_text_from_right_to_left_stands_in_order(browser: Browser, tmp_path: Path) -> None:
    words = ["القطة", "اشترت", "الدراجة"]
    browser.open_html(page(alignment_html(viewed(words, ["x", "y"], WEIGHTS))), tmp_path)
    places = browser.run(
        "[...document.querySelectorAll('.nmt-source .nmt-word')].map(w => w.getBoundingClientRect().x)"
    )
    assert places == sorted(places, reverse=True)
    columns = browser.run("[...document.querySelectorAll('.nmt-cell')].map(c => +c.getAttribute('x'))")
    assert columns[0] > columns[1]  # the first word's column is the rightmost, as the sentence is read
    browser.hover(".nmt-cell")
    assert lit(browser) == {"القطة": "100%", "x": "100%"}


@pytest.mark.parametrize(("mark", "is_reversed"), [("\u200f", True), ("\u200e", False), ("", False)])
def test_columns_run_as_the_browser_shows_the_sentence(
    browser: Browser, tmp_path: Path, mark: str, is_reversed: bool
) -> None:
    words = [f"{mark}HTML", "اشترت", "الدراجة"]
    browser.open_html(page(alignment_html(viewed(words, ["x", "y"], WEIGHTS))), tmp_path)
    assert browser.run("getComputedStyle(document.querySelector('.nmt-source')).direction") == (
        "rtl" if is_reversed else "ltr"
    )
    columns = browser.run("[...document.querySelectorAll('.nmt-cell')].map(c => +c.getAttribute('x'))")
    assert (columns[0] > columns[1]) is is_reversed


def test_words_of_a_sentence_without_spaces_stand_together(browser: Browser, tmp_path: Path) -> None:
    words = list("猫买书")
    browser.open_html(page(alignment_html(viewed(words, ["x", "y"], WEIGHTS, source="猫买书", text="x, y"))), tmp_path)
    assert browser.run("document.querySelector('.nmt-source').textContent") == "猫买书"
    assert browser.run("document.querySelector('.nmt-target').textContent") == "x, y"


def test_a_phone_does_not_scroll_sideways_and_dark_is_dark(browser: Browser, tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(40)]
    browser.show(390, 800, dark=True)
    browser.open_html(page(alignment_html(viewed(words, words, np.eye(40)))), tmp_path)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    element = "document.querySelector('nmt-alignment')"
    browser.wait(f"getComputedStyle({element}).getPropertyValue('--nmt-paper') == '#16181b'")


def test_a_drawing_needs_no_stylesheet(browser: Browser, tmp_path: Path) -> None:
    browser.open_html(
        page(alignment_html(viewed(["a & <b>", "b", "c"], ["x", "y"], WEIGHTS, saliency=round_weights(WEIGHTS)))),
        tmp_path,
    )
    drawing = browser.run("document.querySelector('nmt-alignment').svg()")
    parsed = browser.run(
        f"new DOMParser().parseFromString({drawing!r}, 'image/svg+xml').querySelectorAll('rect').length"
    )
    assert parsed > 2 * 5
    assert "class=" not in drawing
    assert "a &amp; &lt;b&gt;" in drawing
