"""Translations in Python and in notebooks: what is taken, what is compared, shown and drawn."""

import html
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import nmt
from nmt.errors import UserError
from nmt.translation import empty_translation, join_parts, to_sentences
from nmt.translator import SentencePair, Translation, Translator

SENTENCES = ["She helps her brother.", "He sleeps.", ""]


@pytest.fixture(scope="module")
def translations(translator: Translator) -> list[Translation]:
    return translator.translate(SENTENCES)


def test_one_sentence_gives_one_translation(translator: Translator, translations: list[Translation]) -> None:
    found = translator.translate(SENTENCES[1])
    assert isinstance(found, Translation)
    assert found.text == translations[1].text


def test_a_long_line_of_white_space_is_an_empty_sentence(tiny_run: Path) -> None:
    """The subwords of the tests' run have none for white space, so they are counted as bytes."""
    translator = Translator.load(tiny_run, device="cpu")
    translator.tokenizers.source.encode = lambda lines: [list(line.encode()) for line in lines]  # type: ignore[method-assign]
    line = "\x85" * 400
    white, _ = translator._translate_lines([line, "a"], 1, None)
    assert [(each.source, each.text) for each in white] == [(line, "")]


@pytest.mark.parametrize("n", [0, -1, 10_001])
def test_how_many_translations_may_be_asked_for(translator: Translator, n: int) -> None:
    for find in (translator.translate_n_best, translator.sample):
        with pytest.raises(UserError, match="at least 1 and at most 10,000"):
            find([SENTENCES[0]], n)


def test_any_collection_of_sentences_is_translated_in_its_order(
    translator: Translator, translations: list[Translation]
) -> None:
    column = pandas.Series(SENTENCES, index=[2, 0, 1])  # translated by label, the order would be another
    for given in (tuple(SENTENCES), iter(SENTENCES), (line for line in SENTENCES), column, np.array(SENTENCES)):
        assert [each.source for each in translator.translate(given)] == SENTENCES
    assert translator.translate(column) == translations
    assert translator.translate([]) == []
    assert [len(each) for each in translator.translate_n_best(column, 2)] == [2, 2, 1]
    assert [each[0].source for each in translator.sample(column)] == SENTENCES
    frame = pandas.DataFrame({"en": column})
    frame["fr"] = [each.text for each in translator.translate(frame["en"])]
    assert dict(zip(frame["en"], frame["fr"], strict=True)) == {each.source: each.text for each in translations}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["a", None], "sentence 2 of 2 is None, not a text"),
        (pandas.Series(["a", float("nan")]), "sentence 2 of 2 is nan, not a text"),
        (3, "3 is neither a sentence nor several"),
    ],
)
def test_what_is_no_text_is_told(given: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        to_sentences(given)


def test_a_wrong_keyword_gives_the_nearest_right_one(tiny_run: Path) -> None:
    for wrong, right in (("beam", "beam_size"), ("lenght_penalty", "length_penalty"), ("presicion", "precision")):
        keywords: dict[str, Any] = {wrong: 5}
        with pytest.raises(UserError, match=rf"Translator.load '{wrong}': .*; did you mean '{right}'\?"):
            Translator.load(tiny_run, **keywords)
    with pytest.raises(UserError, match=r"Translator.sample 'temprature': .*; did you mean 'temperature'"):
        Translator.load(tiny_run).sample(["a"], temprature=2)
    with pytest.raises(UserError, match="unknown words 'space': choose one of spaces, split; did you mean 'spaces'"):
        Translator.load(tiny_run, words="space")


def test_translations_can_be_compared(translator: Translator, translations: list[Translation]) -> None:
    again = translator.translate(SENTENCES)
    assert again == translations
    assert again[0] != again[1]
    assert replace(again[0], weights=again[0].weights / 2) != translations[0]
    assert set(again) == set(translations)
    assert translations[0] != "a text"


def test_a_dictionary_of_it_is_what_the_command_prints(
    translations: list[Translation], tiny_run: Path, call: Callable[..., Any]
) -> None:
    printed = call("translate", "--checkpoint", str(tiny_run), "--device", "cpu", "--json", *SENTENCES).stdout
    for line, translation in zip(printed.splitlines(), translations, strict=True):
        found = json.loads(line)
        assert list(found) == list(translation.to_dict())
        assert found["text"] == translation.text
        assert found["source_words"] == translation.source_words
        np.testing.assert_allclose(found["weights"], translation.to_dict()["weights"], atol=2e-3)


def test_a_notebook_shows_it(translations: list[Translation]) -> None:
    shown = translations[0]._repr_html_()
    (data,) = re.findall(r'<nmt-alignment data="([^"]*)"', shown)
    found = json.loads(html.unescape(data))
    assert found["source_words"] == ["She", "helps", "her", "brother", "."]
    assert (found["source"], found["text"]) == (translations[0].source, translations[0].text)
    hostile = replace(translations[0], source="<script>alert(1)</script>", text='"><b>')
    assert "<script>alert" not in hostile._repr_html_()
    assert "<b>" not in hostile._repr_html_()
    assert "http" not in re.sub(r"http://www\.w3\.org/\S+", "", shown)  # names of XML apart, nothing is fetched
    assert translations[2]._repr_html_()  # nothing to show is shown too


def test_it_can_be_drawn(translations: list[Translation], tmp_path: Path) -> None:
    figure = translations[0].plot(title="a sentence")
    assert figure._repr_png_().startswith(b"\x89PNG")
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == translations[0].target_words
    figure.savefig(tmp_path / "heatmap.svg")
    assert (tmp_path / "heatmap.svg").read_text(encoding="utf-8").count("<svg") == 1


def test_given_pairs_are_shown_and_count_as_asked(translator: Translator) -> None:
    pair = translator.align("He sleeps.", "Il dort.")
    assert isinstance(pair, SentencePair)
    assert (pair.source_words, pair.target_words) == (["He", "sleeps."], ["Il", "dort."])  # as gold links count
    (split,) = translator.align(["He sleeps."], ["Il dort."], words="split")
    assert (split.source_words, split.target_words) == (["He", "sleeps", "."], ["Il", "dort", "."])
    np.testing.assert_allclose(split.weights.sum(axis=1), 1.0)
    # The columns of a word are those of its parts.
    np.testing.assert_allclose(split.weights[0, 1] + split.weights[0, 2], pair.weights[0, 1], atol=1e-6)
    assert (pair.source, pair.text) == ("He sleeps.", "Il dort.")
    assert "nmt-alignment" in pair._repr_html_()
    with pytest.raises(UserError, match="2 sources and 1 targets are no pairs"):
        translator.align(["a", "b"], ["c"])
    with pytest.raises(UserError, match="unknown words 'gold'"):
        translator.align("a", "b", words="gold")
    assert translator.perplexity("He sleeps.", "Il dort.") == translator.perplexity(["He sleeps."], ["Il dort."])


def test_words_between_spaces_can_be_had_back(tiny_run: Path) -> None:
    found = Translator.load(tiny_run, device="cpu", words="spaces").translate("She helps her brother.")
    assert found.source_words == ["She", "helps", "her", "brother."]
    assert found.target_words == found.text.split()


def test_the_package_shows_its_names() -> None:
    assert set(dir(nmt)) == {"SentencePair", "Translation", "Translator", "UserError", "__version__"}
    assert all(getattr(nmt, name) for name in dir(nmt))
    code = "import sys, nmt; dir(nmt); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    with pytest.raises(AttributeError, match="no attribute 'Translater'"):
        _ = nmt.Translater


def test_the_score_of_a_translation_in_parts_is_their_mean() -> None:
    parts = [
        [replace(empty_translation(name), score=score, log_prob=score)] for name, score in (("a", -1.0), ("b", -4.0))
    ]
    (whole,) = join_parts("a b", parts)
    assert (whole.score, whole.log_prob, whole.parts) == (-2.5, -5.0, 2)
