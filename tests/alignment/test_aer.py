"""The alignment error rate against worked examples and counting; gold as it is read."""

from collections.abc import Iterable

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.alignment.aer import alignment_error_rate, check_comparable, read_gold
from nmt.alignment.pharaoh import Links, parse_pharaoh
from nmt.config.schema import TokenizerConfig
from nmt.errors import UserError
from nmt.text.tokenizer import Tokenizers, build_tokenizers
from nmt.text.vocabulary import Vocabulary

LINK_SETS = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)))
GOLD = st.tuples(LINK_SETS, LINK_SETS).map(lambda sets: Links(sets[0], sets[0] | sets[1]))


def test_error_rate_of_a_worked_example() -> None:
    # A = {00, 11, 22}, S = {00, 12}, P = S + {11}: |A & S| = 1, |A & P| = 2, |A| = 3, |S| = 2.
    scores = alignment_error_rate([{(0, 0), (1, 1), (2, 2)}], [parse_pharaoh("0-0 1-2 1?1")])
    assert scores.aer == pytest.approx(1 - (1 + 2) / (3 + 2))
    assert scores.precision == pytest.approx(2 / 3)
    assert scores.recall == pytest.approx(1 / 2)


def test_error_rate_pools_the_corpus() -> None:
    gold = [parse_pharaoh("0-0"), parse_pharaoh("0-0 1-1 2-2")]
    scores = alignment_error_rate([{(5, 5)}, {(0, 0), (1, 1), (2, 2)}], gold)
    assert scores.aer == pytest.approx(1 - 6 / 8)


@given(st.lists(st.tuples(LINK_SETS, GOLD), max_size=4))
def test_error_rate_by_counting(pairs: list[tuple[frozenset[tuple[int, int]], Links]]) -> None:
    sure_hits = sum(link in gold.sure for links, gold in pairs for link in links)
    hits = sum(link in gold.possible for links, gold in pairs for link in links)
    size = sum(len(links) + len(gold.sure) for links, gold in pairs)
    scores = alignment_error_rate([links for links, _ in pairs], [gold for _, gold in pairs])
    assert scores.aer == pytest.approx(1 - (sure_hits + hits) / size if size else 0)
    assert 0 <= scores.aer <= 1


def test_error_rate_wants_gold_for_every_sentence() -> None:
    with pytest.raises(ValueError, match="shorter"):
        alignment_error_rate([set(), set()], [parse_pharaoh("")])


def test_gold_is_read_and_checked() -> None:
    corpus = datasets.Dataset.from_dict({"source": ["a b", ""], "target": ["A", ""], "alignment": ["1-0", None]})
    assert read_gold(corpus, "test") == [parse_pharaoh("1-0"), parse_pharaoh("")]
    assert read_gold(corpus.remove_columns("alignment"), "test") is None
    wrong = datasets.Dataset.from_dict({"source": ["a b"], "target": ["A"], "alignment": ["0-1"]})
    with pytest.raises(UserError, match="gold alignment of test line 1: link 0-1 points outside the pair"):
        read_gold(wrong, "test")


def test_an_error_rate_that_no_pair_can_have_is_told() -> None:
    tokenizers = build_tokenizers(["a b", "A"], ["a b", "A"], TokenizerConfig(kind="whitespace"))
    check_comparable("aer", tokenizers, ["a b"], ["A"])

    class Crossing(Vocabulary):
        def parts(self, ids: Iterable[int], line: str) -> tuple[list[str], list[int]]:
            return [line] if line == "a b" else line.split(), [0]

    crossing = Tokenizers(Crossing(b"a\nb\n"), tokenizers.target)
    check_comparable("aer", crossing, ["a b", "a"], ["A", "A"])
    with pytest.raises(UserError, match=r"trainer\.metric=aer cannot be measured in any of 2 validation pairs"):
        check_comparable("aer", crossing, ["a b", "a b"], ["A", "A"])
