"""Sentences that one word decides: the label is that of the main clause, and of no other."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from nmt.data.grammar.chooser import Chooser
from nmt.data.grammar.lexicon import FREQUENCY, Lexicon
from nmt.data.grammar.words import Kind
from nmt.text.words import text_words

CONJUNCTIONS = {"because", "when", "while", "if"}
PERSONS = [noun.english for noun in Lexicon().nouns if noun.kind is Kind.PERSON]
SENTENCES = 150
DETERMINERS = {"the", "my", "his", "her", "our", "their"}  # of one and of several
ADVERBS = {"never", *(adverb.english for adverb in FREQUENCY)}


@pytest.fixture(params=["number", "negation"])
def task(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def drawn(task: str, script: Callable[[str], Any]) -> list[Any]:
    return draw(script("studies.deciding_words").DecidedSentences, task)


@functools.cache
def draw(kind: Callable[..., Any], task: str) -> list[Any]:
    return list(itertools.islice(kind(task, Chooser("test"), 12), SENTENCES))


def has_property(task: str, word: str) -> bool:
    if task == "negation":
        assert word in ADVERBS
        return word == "never"
    (found,) = {word == many for one, many in PERSONS if word in (one, many)}
    return found


def test_the_deciding_word_has_the_property_of_the_label(drawn: list[Any], task: str) -> None:
    for text, label, position in drawn:
        assert has_property(task, text_words(text)[position]) == bool(label)


def test_the_deciding_word_is_in_the_clause_without_a_conjunction(drawn: list[Any], task: str) -> None:
    for text, _, position in drawn:
        words = text_words(text)
        # From the comma before, or the beginning: `the old SUBJECT`, and then perhaps `will`, and the adverb.
        begin = max((i + 1 for i in range(position) if words[i] == ","), default=0)
        assert words[begin] in DETERMINERS
        assert position == first(task, words, begin)
        assert position - begin <= (3 if task == "number" else 5)
        assert not CONJUNCTIONS.intersection(words[begin:position])
        assert "," not in words[position:]


def first(task: str, words: Sequence[str], begin: int) -> int:
    """Return where the subject, or the adverb, of the clause stands that begins here."""
    candidates = {form for noun in PERSONS for form in noun} if task == "number" else ADVERBS
    return next(i for i in range(begin, len(words)) if words[i] in candidates)


def test_the_other_clauses_say_nothing_about_the_label(drawn: list[Any], task: str) -> None:
    """What clauses with a conjunction say: the same in both classes, the property as often as not."""
    shares = []
    for label in (0, 1):
        found = []
        for text, own, _ in drawn:
            words = text_words(text)
            for i in (i for i, word in enumerate(words) if word in CONJUNCTIONS and own == label):
                assert words[i + 1] in DETERMINERS
                found.append(has_property(task, words[first(task, words, i)]))
        shares.append(sum(found) / len(found))
    assert shares == pytest.approx([0.5, 0.5], abs=0.06)


def test_classes_and_lengths_vary(drawn: list[Any]) -> None:
    assert sum(each.label for each in drawn) == pytest.approx(SENTENCES / 2, abs=20)
    lengths = [len(each.text.split()) for each in drawn]
    assert min(lengths) < 12
    assert max(lengths) > 80
    assert len({each.text for each in drawn}) > SENTENCES - 5


def test_sentences_depend_on_the_seed_alone(script: Callable[[str], Any], task: str) -> None:
    module = script("studies.deciding_words")
    first, again, other = (
        list(itertools.islice(module.DecidedSentences(task, Chooser(seed), 3), 20)) for seed in ("1", "1", "2")
    )
    assert first == again != other
    assert not any(f" a {vowel}" in f" {each.text}" for each in first for vowel in "aeiou")
