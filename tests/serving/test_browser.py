"""The page in a browser: typing, pointing, options, two runs, links."""

import json
import time
from pathlib import Path

import pytest

from nmt.serving.app import Api
from nmt.serving.served_run import ServedRun
from tests.browser import Browser
from tests.sentences import SENTENCE
from tests.serving.pages import CHANGED, MESSAGE, TEXT, UNREACHABLE, Serving, write


def test_typing_translates_in_both_runs(page: Browser, run: ServedRun) -> None:
    write(page, SENTENCE)
    best = run.translator.translate([SENTENCE])[0]
    page.wait(f"{TEXT} == {best.text!r}")
    shown = page.run("[...document.querySelectorAll('.pane .nmt-target')].map(line => line.textContent)")
    assert shown == [best.text, best.text]
    page.hover(".pane .nmt-target .nmt-word")
    assert page.run("document.querySelectorAll('.nmt-lit').length") > 0
    assert page.errors == []


SLOW = (
    "const f = fetch; window.fetch = async (...a) => { await new Promise(r => setTimeout(r, 1000)); return f(...a); }"
)


@pytest.mark.parametrize("kept", ["", "#text=He+"])
def test_what_is_typed_before_the_server_answers_is_kept(
    browser: Browser, address: str, run: ServedRun, kept: str
) -> None:
    browser.show()
    browser.open("about:blank")
    script = browser.send("Page.addScriptToEvaluateOnNewDocument", source=SLOW)["identifier"]
    try:
        browser.open(address + kept)
        assert browser.run("document.querySelectorAll('.pane').length") == 0
        browser.run("document.querySelector('#text').focus()")
        browser.key("End")
        browser.type("sleeps.")
        assert browser.run("document.querySelectorAll('.pane').length") == 0
        browser.wait("document.querySelectorAll('.pane .nmt-word').length > 3")
    finally:
        browser.send("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    text = "He sleeps." if kept else "sleeps."
    assert browser.run("document.querySelector('#text').value") == text
    assert browser.run(TEXT) == run.translator.translate([text])[0].text
    assert browser.run("new URLSearchParams(location.hash.slice(1)).get('text')") == text


def test_options_show_more_and_stand_in_the_address(page: Browser) -> None:
    write(page, SENTENCE)
    page.click("#saliency")
    page.run("n.value = 3; n.dispatchEvent(new Event('change'))")
    page.wait("document.querySelectorAll('.best li').length == 6")
    page.wait("document.querySelectorAll('.pane .nmt-map').length == 4")
    page.click(".best li:nth-child(2) button")
    second = page.run("document.querySelector('.best li:nth-child(2) button').textContent")
    assert page.run(TEXT) == second
    assert page.run("location.hash").endswith("n=3&saliency=1")


def test_an_empty_page_offers_nothing_to_save(page: Browser) -> None:
    assert page.run("getComputedStyle(document.querySelector('.export')).display") == "none"
    write(page, SENTENCE)
    assert page.run("getComputedStyle(document.querySelector('.export')).display") != "none"


def test_a_translation_without_words_has_no_heatmap_to_save(page: Browser) -> None:
    offered = "[...document.querySelectorAll('.pane')].map(pane => [...pane.querySelectorAll('[data-kind]')]"
    offered += ".filter(button => button.offsetParent).map(button => button.dataset.kind).join(' '))"
    page.run("document.querySelector('#text').focus()")
    page.type("\u200b")  # a zero-width space, which has no subwords
    page.wait(f"{offered}.every(kinds => kinds == 'json html')")
    write(page, SENTENCE)
    page.wait(f"{offered}.every(kinds => kinds == 'png svg json html')")
    assert page.errors == []


FAILING = """
    const f = fetch;
    window.fetch = (where, how) => f(where, how?.body?.includes("compare") ? { ...how, body: "{}" } : how);
"""


def test_an_error_of_one_run_is_told_beside_the_other(page: Browser) -> None:
    """And what the failing run has shown of another text is taken away."""
    write(page, SENTENCE)
    page.run(FAILING)
    page.run("text.value = 'He sleeps.'; text.dispatchEvent(new Event('input'))")
    page.wait("document.querySelector('#message').textContent != '' && !document.querySelector('.waiting')")
    page.wait("document.querySelectorAll('.pane')[1].querySelector('nmt-alignment').hidden")
    assert not page.run("document.querySelectorAll('.pane')[0].querySelector('nmt-alignment').hidden")
    assert page.run("document.querySelector('#message').textContent") != ""


def test_a_server_that_has_gone_is_told_and_asked_again(browser: Browser, run: ServedRun, serving: Serving) -> None:
    api = Api({"checkpoint": run, "compare": run}, max_waiting=8, requests_per_second=100)
    with serving(api) as address:
        browser.open(address)
        browser.wait("document.querySelectorAll('.pane').length == 2")
        write(browser, SENTENCE)
    browser.run(CHANGED)
    told = "the server does not answer: if it has ended, start it again"
    browser.wait(f"{MESSAGE} == {told!r}")  # once, not for each run
    assert browser.run("document.querySelector('.pane nmt-alignment').hidden")
    with serving(api, port=int(address.rstrip("/").rpartition(":")[2])):
        browser.wait("!document.querySelector('.pane nmt-alignment').hidden")
        browser.wait(f"{MESSAGE} == ''")
        assert browser.run(TEXT) == run.translator.translate(["He sleeps."])[0].text


def test_a_page_whose_server_has_gone_says_what_to_do(browser: Browser, address: str) -> None:
    browser.open("about:blank")
    script = browser.send("Page.addScriptToEvaluateOnNewDocument", source=UNREACHABLE)["identifier"]
    browser.open(address)
    browser.send("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    browser.wait(f"{MESSAGE}.endsWith('start it again; to try again, reload this page')")


def test_an_error_is_told_and_typing_goes_on(page: Browser) -> None:
    page.run("document.querySelector('#text').focus()")
    page.type("a b c d " * 30)
    page.wait("document.querySelector('#message').textContent.includes('text is too long')")
    page.run("text.value = ''")
    write(page, SENTENCE)
    page.wait("document.querySelector('#message').textContent == ''")


def test_text_of_the_page_is_never_markup(page: Browser) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    page.run("document.querySelector('#text').focus()")
    page.type(hostile)
    page.wait("document.querySelectorAll('.pane .nmt-source .nmt-word').length > 0")
    shown = page.run("document.querySelector('.pane .nmt-source').textContent")
    assert shown.replace(" ", "") == hostile.replace(" ", "")
    assert page.run("document.querySelectorAll('img').length") == 0
    assert page.errors == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_phone_does_not_scroll_sideways(page: Browser, address: str, dark: bool) -> None:
    page.show(390, 800, dark=dark)
    write(page, SENTENCE)
    assert page.run("document.documentElement.scrollWidth") <= 390
    color = "getComputedStyle(document.body).backgroundColor"
    page.wait(f"{color} == 'rgb({'22, 24, 27' if dark else '255, 255, 255'})'")


@pytest.mark.parametrize("kind", ["png", "svg", "json", "html"])
def test_exports(page: Browser, kind: str, tmp_path: Path) -> None:
    write(page, SENTENCE)
    page.send("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.click(f".export [data-kind={kind}]")
    file = tmp_path / f"alignment-checkpoint.{kind}"
    limit = time.monotonic() + 20
    while not (file.is_file() and file.stat().st_size):
        assert time.monotonic() < limit
        time.sleep(0.05)
    content = file.read_bytes()
    begins = {"png": b"\x89PNG", "svg": b"<svg", "json": b"{", "html": b"<!DOCTYPE html>"}
    assert content.startswith(begins[kind])
    if kind == "html":
        assert not [word for word in ("http://", "https://", "src=") if word in content.decode()]
        page.open(file.as_uri())
        page.wait("document.querySelectorAll('.nmt-cell').length > 0")
    assert page.errors == []


def test_the_tree_of_the_beam_is_drawn(page: Browser) -> None:
    write(page, SENTENCE)
    page.click("#tree")
    page.wait("document.querySelectorAll('.tree text').length > 6")
    chosen = "[...document.querySelector('.pane').querySelectorAll('.tree text.chosen')]"
    shown = "".join(page.run(f"{chosen}.map(each => each.firstChild.textContent)"))
    shown = shown.replace("\u2068", "").replace("\u2069", "")  # each is isolated, whatever its direction
    assert shown.replace("\u2423", " ").strip() in page.run(TEXT)
    assert page.errors == []


def trained(run: ServedRun, folder: Path, shares: dict[int, float]) -> Api:
    """A run with validations, each of which weighs the reference's alignment by its share."""
    common = {"sample": 0, "source": "a b", "reference": "x", "source_words": ["a", "b"], "target_words": ["y", "z"]}
    records = [
        {"step": step, **common, "translation": f"y z {step}", "weights": [[1, 0], [0, 1]], "reference_words": ["x"]}
        | {"reference_weights": [[share, 1 - share]]}
        for step, share in shares.items()
    ]
    (folder / "alignments.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records), encoding="utf-8")
    moved = ServedRun(str(folder), run.translator, run.languages, 40)
    return Api({"checkpoint": moved}, max_waiting=8, requests_per_second=100)


def last_updates(browser: Browser, address: str) -> list[str]:
    """The update that the slider starts at, and the one before, where it is left."""
    update = "document.querySelector('#update').textContent"
    browser.open(address)
    browser.wait("!document.querySelector('#history').hidden")
    last = browser.run(update)
    browser.run("step.focus()")
    browser.key("ArrowLeft")
    return [last, browser.run(update)]


def test_a_slider_moves_through_the_training(
    browser: Browser, run: ServedRun, tmp_path: Path, serving: Serving
) -> None:
    past = "document.querySelector('#past')"
    browser.errors.clear()
    with serving(trained(run, tmp_path, {1: 0.5, 100: 0.75, 2000: 1.0})) as address:
        assert last_updates(browser, address) == ["2,000", "100"]
        assert browser.run(f"{past}.data.weights") == [[0.75, 0.25]]
        browser.run("side.value = 'translation'; side.dispatchEvent(new Event('input'))")
        assert browser.run(f"{past}.querySelector('.nmt-target').textContent") == "y z"
        assert browser.run("reference.parentNode.textContent") == "reference: x"
        assert browser.run("reference.localName") == "bdi"  # its direction is not that of the label
        assert browser.errors == []


def test_a_slider_starts_at_the_last_of_many_validations(
    browser: Browser, run: ServedRun, tmp_path: Path, serving: Serving
) -> None:
    with serving(trained(run, tmp_path, dict.fromkeys(range(1, 151), 1.0))) as address:
        assert last_updates(browser, address) == ["150", "149"]
