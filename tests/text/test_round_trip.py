"""Text that comes back from its subwords, and what is told of text that does not."""

import logging

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.schema import TokenizerConfig
from nmt.text.round_trip import SAMPLED_LINES, changed_lines, first_difference, sample_lines, warn_of_changes
from nmt.text.sentencepiece_model import SPACES, normalize
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocabulary import Vocabulary

TEXT = ["我看见水，我喜欢猫！", "ทำงานวันนี้", "a\u00a0b\u3000c\td é …", "می\u200cخواهم m² ½"] * 5

# The word mark itself stands for a space; sentencepiece's models have no character 0.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\u2581\0"), max_size=30)


def learned(normalization: str, kind: str = "unigram", lines: list[str] = TEXT) -> Tokenizer:
    return Tokenizer.train(lines, TokenizerConfig(kind=kind, normalization=normalization), 600)


KEEPS = {kind: learned(SPACES, kind) for kind in ("unigram", "bpe")}


def words(line: str) -> list[str]:
    return line.split()


@pytest.mark.parametrize("kind", KEEPS)
@given(text=texts, alpha=st.sampled_from([0.0, 0.3]))
def test_spaces_alone_are_normalized(kind: str, text: str, alpha: float) -> None:
    tokenizer = KEEPS[kind]
    assert tokenizer.decode(tokenizer.sample([text], alpha, 1)) == [" ".join(words(text))]


def test_a_model_does_not_tell_where_it_was_learned() -> None:
    assert learned(SPACES).model == KEEPS["unigram"].model
    assert b"rules.tsv" not in KEEPS["unigram"].model


@pytest.mark.parametrize(
    ("line", "difference"), [("水，我", ("，", ",")), ("ทำ", ("ำ", "ํ")), ("a …", ("…", ".")), ("a\u200cb", None)]
)
def test_what_the_usual_normalization_changes(line: str, difference: tuple[str, str] | None) -> None:
    ((before, after),) = changed_lines([line], normalize([line], "nmt_nfkc"))
    if difference is not None:
        assert first_difference(before, after) == difference


def test_white_space_is_no_change() -> None:
    assert not changed_lines(["a\u00a0b ", "\u3000c"], normalize(["a\u00a0b ", "\u3000c"], "nmt_nfkc"))
    assert changed_lines(["a\u200cb"], ["a b"])
    assert first_difference("ab", "a b") == ("ab", "ab")
    assert first_difference("ab", "a") == ("b", "")


def test_lines_are_taken_from_all_over_the_corpus() -> None:
    numbers = [str(number) for number in range(3 * SAMPLED_LINES - 1)]
    corpus = datasets.Dataset.from_dict({"source": numbers, "target": numbers})
    assert sample_lines(corpus) == numbers[::3]
    assert sample_lines(corpus.select(range(5))) == numbers[:5]
    assert sample_lines(corpus.select([])) == normalize([], "nmt_nfkc") == []


@pytest.mark.parametrize(
    ("normalization", "lines", "lowercase", "told"),
    [
        ("nmt_nfkc", TEXT, False, "100% of the target lines cannot be written as they are"),
        ("nmt_nfkc", ["水，我"] + ["a"] * 49, False, "2% of the target lines"),
        ("nmt_nfkc", ["水，我"] + ["a"] * 150, False, ""),
        (SPACES, TEXT, False, ""),
        ("nmt_nfkc_cf", ["The Dog"] * 5, False, "('T' becomes 't')"),
        ("nmt_nfkc_cf", ["The Dog"] * 5, True, ""),
    ],
)
def test_a_warning(
    normalization: str, lines: list[str], lowercase: bool, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = learned(normalization, lines=lines)
    corpus = datasets.Dataset.from_dict({"source": lines, "target": lines})
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        warn_of_changes(corpus, tokenizer, lowercase=lowercase, is_learned=True)
    assert len(caplog.messages) == bool(told)
    assert told in caplog.text


@pytest.mark.parametrize("is_learned", [True, False])
def test_a_key_is_advised_that_has_an_effect(is_learned: bool, caplog: pytest.LogCaptureFixture) -> None:
    corpus = datasets.Dataset.from_dict({"source": TEXT, "target": TEXT})
    warn_of_changes(corpus, learned("nmt_nfkc", lines=TEXT), lowercase=False, is_learned=is_learned)
    assert ("tokenizer.normalization=spaces keeps them" in caplog.text) is is_learned


def test_segmented_text_has_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    corpus = datasets.Dataset.from_dict({"source": ["a"], "target": ["un@@ known"]})
    warn_of_changes(corpus, Vocabulary(b"a\nb\n"), lowercase=False, is_learned=False)
    assert not caplog.messages
