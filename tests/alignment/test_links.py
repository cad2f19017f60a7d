import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.alignment.links import (
    METHODS,
    LinkRule,
    alignment_error_rate,
    argmax_links,
    attention_entropy,
    coverage_deficit,
    intersection,
    threshold_links,
)
from nmt.alignment.pharaoh import Links, parse_pharaoh
from nmt.config.schema import LinksConfig, keys

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


def test_argmax_links_are_source_target() -> None:
    weights = np.array([[0.1, 0.2, 0.7], [0.6, 0.4, 0.0], [0.0, 0.0, 0.0]])
    assert argmax_links(weights) == {(2, 0), (0, 1)}
    assert argmax_links(np.zeros((0, 0))) == set()
    assert argmax_links(np.zeros((2, 0))) == set()


def test_entropy_of_known_rows() -> None:
    uniform, hard = np.full((3, 4), 0.25, dtype=np.float32), np.eye(2, 4)
    assert attention_entropy([uniform]) == pytest.approx(math.log(4))
    assert attention_entropy([hard]) == 0
    # A mean over rows, not over sentences; rows of zeros do not count.
    assert attention_entropy([uniform, np.eye(1, 4), np.zeros((5, 4))]) == pytest.approx(math.log(4) * 3 / 4)
    assert attention_entropy([np.zeros((0, 0))]) is None


def test_threshold_links_are_all_that_reach_it() -> None:
    weights = np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.1, 0.0, 0.1]])
    assert threshold_links(weights, 0.3) == {(2, 0), (0, 1), (1, 1), (2, 1)}
    assert threshold_links(weights, 0.71) == set()
    assert threshold_links(np.zeros((0, 0)), 0.1) == threshold_links(np.zeros((2, 0)), 0.1) == set()


def test_a_rule_is_a_method_with_its_threshold() -> None:
    weights = np.array([[0.4, 0.6]])
    assert LinkRule().links(weights) == LinkRule("argmax", 0.9).links(weights) == {(1, 0)}
    assert LinkRule("threshold", 0.4).links(weights) == {(0, 0), (1, 0)}
    assert {name: set(member.metadata["choices"]) for name, member, _ in keys(LinksConfig())}["method"] == set(METHODS)


def test_the_reverse_direction_has_its_links_the_other_way_round() -> None:
    assert intersection({(0, 1), (1, 0), (2, 2)}, {(1, 0), (2, 2), (0, 2)}) == {(0, 1), (2, 2)}


def test_coverage_deficit_is_what_source_words_lack() -> None:
    # Columns receive 1.5, 0.5 and 0: deficits of 0, 0.5 and 1.
    weights = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], dtype=np.float32)
    assert coverage_deficit([weights]) == pytest.approx(1.5 / 3)
    assert coverage_deficit([np.eye(4)]) == 0
    # A mean over source words, not over sentences; a translation without words leaves all of its source out.
    assert coverage_deficit([np.eye(4), np.zeros((0, 2)), np.zeros((0, 0))]) == pytest.approx(2 / 6)
    assert coverage_deficit([np.zeros((0, 0))]) is None
