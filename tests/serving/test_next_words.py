"""The page in a browser: the words that may come in the place of one, and how a translation begins."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.serving.app import Api
from nmt.serving.served_run import ServedRun
from tests.browser import Browser
from tests.sentences import SENTENCE
from tests.serving.pages import CHANGED, HIDDEN, MESSAGE, TEXT, UNREACHABLE, Serving, write


def test_a_chosen_word_is_gone_on_from_and_let_go(page: Browser) -> None:
    write(page, SENTENCE)
    first = page.run(TEXT)
    page.click(".pane .nmt-target .nmt-word")
    page.wait("document.querySelectorAll('.words button').length > 3")
    assert page.run("document.querySelector('.words small').textContent").endswith(" %")
    page.click(".words button:nth-child(2)")
    page.wait("!document.querySelector('.kept').hidden")
    chosen = page.run("document.querySelector('.kept b').textContent")
    assert page.run(TEXT).startswith(chosen.split()[0])
    assert page.run(TEXT) != first
    link = page.run("location.href")
    page.open("about:blank")
    page.open(link)
    page.wait("document.querySelector('.pane .forced')")
    assert page.run("document.querySelector('.kept b').textContent") == chosen
    page.click(".kept button")
    page.wait(f"{TEXT} == {first!r}")
    assert page.errors == []


def test_the_keyboard_alone_chooses_a_word(page: Browser) -> None:
    write(page, SENTENCE)
    focus = "document.activeElement.textContent"
    page.run("document.querySelector('.pane .nmt-target .nmt-word').focus()")
    word = page.run(focus)
    page.key("Enter")
    page.wait("document.activeElement.matches('.words button')")
    page.key("Escape")
    assert page.run("document.querySelector('.next').hidden")
    assert page.run(focus) == word
    page.key("Enter")
    page.wait("document.activeElement.matches('.words button')")
    page.run("document.activeElement.nextElementSibling.focus()")
    page.key("Enter")
    page.wait("document.activeElement.matches('.forced')")
    assert page.run(focus) == page.run("document.querySelector('.kept b').textContent").split()[-1]
    page.run("document.querySelector('.kept button').focus()")
    page.key("Enter")
    page.wait("document.activeElement.matches('.nmt-word:not(.forced)')")
    assert page.run(focus) == word
    assert page.errors == []


TOGETHER = """
    const f = fetch;
    window.fetch = async (where, how) => {
      const answer = await f(where, how);
      if (where !== "translate") return answer;
      const found = await answer.json();
      found.n_best[0].starts[1] = 0;
      return Response.json(found);
    };
"""


def test_characters_of_a_piece_are_replaced_together(page: Browser) -> None:
    """What is offered for the second does not come after the first."""
    page.run(TOGETHER)
    write(page, SENTENCE)
    page.click(".pane .nmt-target .nmt-word:nth-child(2)")
    page.wait("!document.querySelector('.pane .next').hidden")
    assert page.run("document.querySelector('.pane .next p').textContent") == "at the beginning:"
    assert page.errors == []


def test_the_text_before_a_word_is_shown_as_it_stands(page: Browser) -> None:
    """Without spaces between its words where it has none, and with a direction of its own."""
    write(page, SENTENCE)
    page.click(".pane .nmt-target .nmt-word:last-child")
    page.wait("!document.querySelector('.pane .next').hidden")
    text = page.run(TEXT)
    assert text.endswith("e.") or text[-2].isalpha()
    assert page.run("document.querySelector('.pane .next p').textContent") == f"after “{text[:-1]}”:"
    assert page.run("document.querySelector('.pane .next p bdi').textContent") == text[:-1]
    page.click(".words button")
    page.wait("!document.querySelector('.pane .kept').hidden")
    assert page.run("document.querySelector('.kept b').textContent") == page.run(TEXT)[: len(text)]
    assert page.errors == []


LATE = """
    const f = fetch;
    window.fetch = async (where, how) => {
      if (!String(where).startsWith("next")) return f(where, how);
      await new Promise(resolve => setTimeout(resolve, 1000));
      const answer = await f(where, how);
      setTimeout(() => { window.answered = true; }, 200);
      return answer;
    };
"""


def test_words_of_a_text_that_has_changed_are_not_offered(page: Browser) -> None:
    write(page, SENTENCE)
    page.run(LATE)
    page.click(".pane .nmt-target .nmt-word")
    before = page.run(TEXT)
    page.run("text.value = 'He sleeps.'; text.dispatchEvent(new Event('input'))")
    page.wait(f"{TEXT} != {before!r} && !document.querySelector('.waiting')")
    page.wait("window.answered")
    assert page.run("document.querySelector('.pane .next').hidden")
    page.run("text.value = ''; text.dispatchEvent(new Event('input'))")
    page.wait("document.querySelector('.pane nmt-alignment').hidden && !document.querySelector('.waiting')")


# Requests are listed, and translations come late.
LISTED = """
    const f = fetch;
    window.asked = [];
    window.fetch = async (where, how) => {
      window.asked.push(where);
      if (where === "translate") await new Promise(resolve => setTimeout(resolve, 1000));
      const answer = await f(where, how);
      if (where === "next") setTimeout(() => { window.answered = true; }, 100);
      return answer;
    };
"""


def test_words_of_a_text_are_not_chosen_for_another(page: Browser, run: ServedRun) -> None:
    write(page, SENTENCE)
    page.click(".pane .nmt-target .nmt-word:nth-child(2)")
    page.wait(f"!{HIDDEN}")
    page.run(LISTED)
    page.run(CHANGED)
    assert page.run(HIDDEN)
    page.run("document.querySelector('.words button').click()")
    page.run("document.querySelector('.pane .nmt-target .nmt-word').click()")
    assert page.run("window.asked") == []
    page.wait(f"{TEXT} == {run.translator.translate(['He sleeps.'])[0].text!r}")
    assert page.run("location.hash") == "#text=He+sleeps."
    assert "next" not in page.run("window.asked")
    assert page.errors == []


def test_words_that_come_while_another_text_is_translated_are_not_offered(page: Browser) -> None:
    write(page, SENTENCE)
    page.run(LISTED)
    page.click(".pane .nmt-target .nmt-word")
    page.run(CHANGED)
    page.wait("window.answered")
    assert page.run(HIDDEN)


def test_a_prefix_of_another_model_is_dropped(page: Browser, address: str, run: ServedRun) -> None:
    page.open("about:blank")
    page.open(f'{address}#text=He+sleeps.&prefix.checkpoint=["▁notapiece","zz"]')
    page.wait(f"{TEXT} == {run.translator.translate(['He sleeps.'])[0].text!r}")
    page.wait(f"{MESSAGE}.includes('cannot begin')")
    assert "as text" not in page.run(MESSAGE)
    assert page.run("location.hash") == "#text=He+sleeps."
    page.click("#saliency")
    page.wait(f"{MESSAGE} == ''")


@pytest.mark.parametrize("prefix", ["null", "1", '"a"', '["a",1]', '{"length":1}', "["])
def test_a_prefix_that_is_no_list_of_pieces_is_ignored(page: Browser, address: str, prefix: str) -> None:
    page.open("about:blank")
    page.open(f"{address}#text=He+sleeps.&prefix.checkpoint={prefix}")
    page.wait("document.querySelectorAll('.pane .nmt-word').length > 3")
    page.click("#saliency")
    page.wait("document.querySelectorAll('.pane .nmt-map').length == 4")
    assert page.run("location.hash") == "#text=He+sleeps.&saliency=1"
    assert page.errors == []


def test_words_are_offered_when_the_server_answers_again(page: Browser) -> None:
    write(page, SENTENCE)
    page.run(UNREACHABLE)
    page.click(".pane .nmt-target .nmt-word")
    page.wait(f"{MESSAGE}.includes('does not answer')")
    page.run("window.fetch = f")
    page.click(".pane .nmt-target .nmt-word")
    page.wait(f"!{HIDDEN}")
    assert page.run(MESSAGE) == ""


def test_a_word_shows_where_the_training_text_goes_on_so(
    browser: Browser, serving: Serving, tiny_run: Path, tmp_path: Path, call: Callable[..., Any]
) -> None:
    """The nearest places of the datastore: their share, the target with the word that follows, and the source."""
    shutil.copytree(tiny_run, tmp_path / "run")
    for name, line in (("s", "The small cat <b>sleeps</b>.\n"), ("t", "Le petit chien mange.\n")):
        (tmp_path / name).write_text(30 * line, encoding="utf-8")
    assert call("datastore", "run", "--source", "s", "--target", "t", cwd=tmp_path).returncode == 0
    settings = {"neighbors": 4, "neighbor_weight": 0.9, "neighbor_temperature": 0.1}
    run = ServedRun.load(str(tmp_path / "run"), max_subwords=40, device="cpu", **settings)
    with serving(Api({"checkpoint": run}, max_waiting=8, requests_per_second=100)) as address:
        browser.open(address)
        browser.wait("document.querySelector('.pane')")
        assert browser.run("document.querySelector('#runs').textContent").endswith(" · 4 neighbors")
        write(browser, "The small cat sleeps.")
        browser.click(".pane .nmt-target .nmt-word:nth-child(2)")
        browser.wait(f"!{HIDDEN}")
        places = browser.run("[...document.querySelectorAll('.near li')].map(place => place.textContent)")
        assert len(places) == 4
        assert {place.partition(" % ")[2] for place in places} == {"Le petit chien mange .The small cat <b>sleeps</b>."}
        assert sum(int(place.partition(" % ")[0]) for place in places) in range(98, 103)
        marked = "[...document.querySelectorAll('.near mark')].map(word => word.textContent)"
        assert browser.run(marked) == 4 * ["petit"]
        browser.run("document.querySelector('.words button').click()")
        assert browser.errors == []
