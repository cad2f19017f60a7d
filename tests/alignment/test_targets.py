"""Gold links on their way to a batch, against a loop over words and pieces."""

import logging
from collections.abc import Callable, Sequence

import datasets
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.alignment.targets import AlignmentTargets, WordIndex, same_word_count, target_attention
from nmt.config.schema import TokenizerConfig
from nmt.data.tables import EncodedCorpus, Ragged
from nmt.errors import UserError
from nmt.text.tokenizer import EOS, Tokenizers, build_tokenizers

SOURCES = ["the old river runs", "a window opens", "the gardener waters old gardens", "quiet mornings"]
TARGETS = ["la vieille rivière coule", "une fenêtre s'ouvre", "le jardinier arrose", "matins très calmes"]
LINKS = ["0-0 1-1 2-2 3-3", "", "0-0 1-1 2-2 4?2", "0?0 1-0 1?1 0-2"]

Pair = tuple[list[int], list[int], set[tuple[int, int]], set[tuple[int, int]]]


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def tokenizers(request: pytest.FixtureRequest) -> Tokenizers:
    return build_tokenizers(SOURCES, TARGETS, TokenizerConfig(kind=request.param, vocab_size=330))


def encoded(tokenizers: Tokenizers, sources: list[str], targets: list[str], links: list[str]) -> EncodedCorpus:
    corpus = datasets.Dataset.from_dict({"source": sources, "target": targets, "alignment": links})
    return EncodedCorpus(
        corpus, Ragged.of(tokenizers.source.encode(sources)), Ragged.of(tokenizers.target.encode(targets))
    )


def pharaoh(sure: set[tuple[int, int]], possible: set[tuple[int, int]]) -> str:
    return " ".join([*(f"{i}-{j}" for i, j in sure), *(f"{i}?{j}" for i, j in possible)])


def share(pair: Pair, piece: int, other: int) -> float:
    """What target piece `piece` owes to source piece `other`, by asking every piece about every link."""
    source_word, target_word, sure, possible = pair
    j = target_word[piece]
    links = sure if any(link[1] == j for link in sure) else possible
    linked = [i for i, word in enumerate(source_word) if (word, j) in links]
    return 1 / len(linked) if other in linked else 0.0


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """Words of one to three pieces, and links between them."""
    sides = [draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)) for _ in range(2)]
    source_word, target_word = ([word for word, count in enumerate(side) for _ in range(count)] for side in sides)
    links = st.sets(st.tuples(st.integers(0, len(sides[0]) - 1), st.integers(0, len(sides[1]) - 1)), max_size=6)
    sure, possible = draw(links), draw(links)
    return source_word, target_word, sure, possible - sure


@given(pairs())
def test_links_are_spread_as_a_loop_over_pieces_spreads_them(pair: Pair) -> None:
    source_word, target_word, sure, possible = pair
    found = target_attention(pharaoh(sure, possible), np.array(source_word), np.array(target_word))
    expected = [[share(pair, piece, other) for other in range(len(source_word))] for piece in range(len(target_word))]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_worked_example() -> None:
    """Source words of 1, 2 and 1 pieces; target words of 2, 1 and 1: linked to one, to two, to none."""
    found = target_attention("1-0 1-1 2-1 0?1", np.array([0, 1, 1, 2]), np.array([0, 0, 1, 2]))
    expected = np.array([[0, 3, 3, 0], [0, 3, 3, 0], [0, 2, 2, 2], [0, 0, 0, 0]]) / 6
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@given(st.data())
def test_words_are_those_of_the_tokenizer(tokenizers: Tokenizers, data: st.DataObject) -> None:
    tokenizer = tokenizers.source
    ids = data.draw(st.lists(st.integers(EOS + 1, len(tokenizer) - 1), max_size=12))
    bare = tokenizer.encode(["-"])[0][0]  # the mark alone, before a character that has no piece of its own
    ids = data.draw(st.permutations([*ids, bare, bare])) if ids else ids
    assert WordIndex(tokenizer)(np.array(ids, np.int32)).tolist() == tokenizer.words(ids)[1]


def test_the_mark_stands_alone_in_that_test(tokenizers: Tokenizers) -> None:
    assert tokenizers.source.pieces(tokenizers.source.encode(["-"])[0])[0] == "\u2581"


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_guidance_is_of_the_segmentation_in_use(tokenizers: Tokenizers, alpha: float) -> None:
    """In whatever way it is segmented, the attention between words, summed over pieces, is the same."""
    guide = AlignmentTargets(encoded(tokenizers, SOURCES, TARGETS, LINKS).corpus, tokenizers)
    rows = np.array([3, 0, 2, 1])
    seen = set()
    for seed in range(5):
        sides = [
            [np.array(ids, np.int32) for ids in tokenizer.sample([lines[row] for row in rows], alpha, seed)]
            for tokenizer, lines in ((tokenizers.source, SOURCES), (tokenizers.target, TARGETS))
        ]
        taught = guide(rows, *sides)
        seen.add(tuple(matrix.shape for matrix in taught))
        for row, matrix, source, target in zip(rows, taught, *sides, strict=True):
            assert matrix.shape == (len(target), len(source))
            by_word = np.zeros((len(TARGETS[row].split()), len(SOURCES[row].split())))
            target_word = tokenizers.target.words(target.tolist())[1]
            np.add.at(by_word, np.ix_(target_word, tokenizers.source.words(source.tolist())[1]), matrix)
            by_word /= np.bincount(target_word)[:, None]
            expected = [np.eye(4), np.zeros((3, 3)), np.eye(3, 5), np.array([[0, 1], [0, 1], [1, 0]])][row]
            np.testing.assert_allclose(by_word, expected, atol=1e-6)
    assert (len(seen) > 1) == (alpha > 0)


def test_a_line_of_other_words_than_its_pieces_make_is_not_taught(
    tokenizers: Tokenizers, caplog: pytest.LogCaptureFixture
) -> None:
    """NFKC takes the diaeresis apart, into a space and a mark: three words, of which links know two."""
    odd = ["a win\u00a8dow", *SOURCES]
    corpus = encoded(tokenizers, odd, ["une fenêtre", *TARGETS], ["0-0 1-1", *LINKS])
    assert not same_word_count(odd[0], WordIndex(tokenizers.source)(corpus.source[0]))
    with caplog.at_level(logging.WARNING, logger="nmt.alignment.targets"):
        guide = AlignmentTargets(corpus.corpus, tokenizers)
    assert [record.message for record in caplog.records] == [
        "attention is not guided in about 25% of the linked pairs: the subword models split their lines into different "
        "words than the spaces do"
    ]
    taught = guide(np.arange(5), [corpus.source[row] for row in range(5)], [corpus.target[row] for row in range(5)])
    assert [bool(matrix.any()) for matrix in taught] == [False, True, False, True, True]


def test_nothing_to_teach_is_the_users_error(tokenizers: Tokenizers) -> None:
    with pytest.raises(UserError, match=r"has nothing to teach: .* no links; look at data\.train\.alignment, or set"):
        AlignmentTargets(encoded(tokenizers, SOURCES, TARGETS, ["", " ", "", ""]).corpus, tokenizers)


def test_a_vocabulary_whose_pieces_cross_words_is_the_users_error(
    crossing: Callable[[Sequence[str]], Tokenizers],
) -> None:
    tokenizers = crossing(SOURCES)
    corpus = encoded(tokenizers, SOURCES[:1], SOURCES[:1], ["0-0"])
    assert len(corpus.source[0]) < 4
    with pytest.raises(UserError, match="cannot teach any of 1 training pairs: the subword models split their lines"):
        AlignmentTargets(corpus.corpus, tokenizers)


def test_in_segmented_text_links_count_the_pieces() -> None:
    sources, targets = ["ol@@ d river", "\u2581 \u2581a"], ["vieille riv@@ ière", "une"]
    segmented = build_tokenizers(sources, targets, TokenizerConfig(kind="whitespace"))
    corpus = encoded(segmented, sources, targets, ["2-1 2-2 0-0", "1-0"])
    found = AlignmentTargets(corpus.corpus, segmented)(
        np.arange(2), *([side[0], side[1]] for side in (corpus.source, corpus.target))
    )
    assert [matrix.tolist() for matrix in found] == [[[1, 0, 0], [0, 0, 1], [0, 0, 1]], [[0, 1]]]


@pytest.mark.parametrize("config", [TokenizerConfig(kind="whitespace"), TokenizerConfig(vocab_size=330)])
def test_the_error_rate_counts_the_same_parts(config: TokenizerConfig) -> None:
    lines = ["ol@@ d river", *SOURCES]
    tokenizer = build_tokenizers(lines, lines, config).source
    for line, ids in zip(lines, tokenizer.encode(lines), strict=True):
        assert WordIndex(tokenizer)(np.array(ids, np.int32)).tolist() == tokenizer.parts(ids, line)[1]


@pytest.mark.parametrize(("line", "words", "same"), [("a b", [0, 0, 1], True), ("a b", [0, 0], False), ("", [], True)])
def test_agreement_is_about_the_number_of_words(line: str, words: list[int], same: bool) -> None:
    assert same_word_count(line, np.array(words, np.int64)) is same
