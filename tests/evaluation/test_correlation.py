"""Rank correlations against their definitions, pair by pair."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.evaluation.correlation import rank_correlation, row_correlation

ROWS = st.integers(2, 7).flatmap(lambda n: st.tuples(*[st.lists(st.integers(0, 4), min_size=n, max_size=n)] * 2))


def tau_b(one: list[int], other: list[int]) -> float:
    pairs = list(itertools.combinations(range(len(one)), 2))
    concordant = sum((one[a] - one[b]) * (other[a] - other[b]) > 0 for a, b in pairs)
    discordant = sum((one[a] - one[b]) * (other[a] - other[b]) < 0 for a, b in pairs)
    untied = [sum(values[a] != values[b] for a, b in pairs) for values in (one, other)]
    return (concordant - discordant) / math.sqrt(untied[0] * untied[1])


def ranks(values: list[int]) -> list[float]:
    """Counted from 1; those that tie share the mean of their ranks."""
    places = sorted(values)
    return [1 + places.index(value) + (places.count(value) - 1) / 2 for value in values]


@given(ROWS)
def test_both_are_their_definitions(rows: tuple[list[int], list[int]]) -> None:
    one, other = rows
    found = rank_correlation([np.array([one], dtype=float)], [np.array([other], dtype=float)])
    if len(set(one)) == 1 or len(set(other)) == 1:
        assert found == (None, None)
    else:
        assert found.spearman == pytest.approx(np.corrcoef(ranks(one), ranks(other))[0, 1])
        assert found.kendall == pytest.approx(tau_b(one, other))


def test_a_worked_example() -> None:
    # Ranks 1 2 3 4 and 2 1 4 3: rho = 1 - 6 x 4 / (4 x 15), 4 concordant and 2 discordant pairs.
    assert row_correlation(np.array([0.1, 0.2, 0.3, 0.4]), np.array([2.0, 1.0, 9.0, 3.0])) == pytest.approx(
        (0.6, 1 / 3)
    )


def test_only_the_order_counts() -> None:
    row = np.random.default_rng(0).random((3, 5))
    assert rank_correlation([row], [np.exp(9 * row)]) == pytest.approx((1, 1))
    assert rank_correlation([row], [-row]) == pytest.approx((-1, -1))


def test_the_mean_is_over_the_rows_that_have_an_order() -> None:
    rising = np.array([[0.1, 0.3, 0.6]])
    first = [rising, np.zeros((0, 0)), np.vstack((rising, rising, np.full((1, 3), 1 / 3))), np.ones((2, 1))]
    second = [rising, np.zeros((0, 0)), np.vstack((rising, -rising, rising)), np.ones((2, 1))]
    assert rank_correlation(first, second) == pytest.approx((1 / 3, 1 / 3))
    assert rank_correlation([], []) == (None, None)
