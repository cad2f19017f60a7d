"""Weights of words from weights of pieces, against sums in Python; entropy and coverage of known weights."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.alignment.weights import (
    Alignment,
    attention_entropy,
    concatenate,
    coverage_deficit,
    merge_words,
    split_characters,
)


def test_merged_words_against_a_worked_example() -> None:
    weights = np.array(
        [
            [0.1, 0.2, 0.3, 0.4],  # "un-"
            [0.3, 0.3, 0.2, 0.2],  # "-der"
            [0.0, 0.0, 0.0, 1.0],  # "." says nothing: all of it is on eos
            [0.2, 0.2, 0.2, 0.4],  # eos
        ],
        dtype=np.float32,
    )
    merged = merge_words(weights, target_word=[0, 0, 1], source_word=[0, 1, 1])
    np.testing.assert_allclose(merged, [[0.4 / 1.4, 1.0 / 1.4], [0.0, 0.0]], atol=1e-7)


def test_a_row_that_is_the_same_everywhere_names_no_word() -> None:
    weights = np.array([[0.25, 0.25, 0.25, 0.25], [0.2, 0.3, 0.2, 0.3], [0.25, 0.25, 0.25, 0.25]], dtype=np.float32)
    # The word of two pieces would have the most of an even row.
    np.testing.assert_allclose(merge_words(weights, [0, 1, 2], [0, 0, 1])[[0, 2]], 0.0)
    np.testing.assert_allclose(
        merge_words(weights, [0, 1, 1], [0, 0, 1]), np.array([[0.0, 0.0], [5 / 7, 2 / 7]]), atol=1e-6
    )
    # Also where there is one word, unless there is nothing beside it, such as an end mark.
    np.testing.assert_allclose(merge_words(weights, [0, 1, 2], [0, 0, 0]), [[0.0], [1.0], [0.0]])
    np.testing.assert_allclose(merge_words(np.ones((2, 1), dtype=np.float32), [0, 1], [0]), 1.0)
    # Sparse attention may be even over the words alone.
    np.testing.assert_allclose(merge_words(np.array([[0.5, 0.5, 0.0]]), [0], [0, 1]), [[0.5, 0.5]])


def test_merging_single_pieces_drops_the_end_marks_only() -> None:
    weights = np.array([[0.5, 0.25, 0.25], [0.0, 0.5, 0.5], [0.1, 0.1, 0.8]])
    np.testing.assert_allclose(merge_words(weights, [0, 1], [0, 1]), [[2 / 3, 1 / 3], [0.0, 1.0]])


def test_merging_nothing() -> None:
    assert merge_words(np.ones((1, 3)), [], [0, 1]).shape == (0, 2)


def word_numbers(draw_sizes: list[int]) -> list[int]:
    return [word for word, size in enumerate(draw_sizes) for _ in range(size)]


@given(
    sizes=st.tuples(*[st.lists(st.integers(1, 3), min_size=1, max_size=4)] * 2),
    seed=st.integers(0, 1000),
    ended=st.booleans(),
)
def test_merged_words_against_sums_in_python(sizes: tuple[list[int], list[int]], seed: int, ended: bool) -> None:
    target_word, source_word = map(word_numbers, sizes)
    weights = np.random.default_rng(seed).random((len(target_word) + ended, len(source_word) + 1))
    merged = merge_words(weights, target_word, source_word)
    for target in range(len(sizes[0])):
        sums = [
            sum(
                weights[i, j]
                for i, t in enumerate(target_word)
                if t == target
                for j, s in enumerate(source_word)
                if s == source
            )
            for source in range(len(sizes[1]))
        ]
        np.testing.assert_allclose(merged[target], np.array(sums) / sum(sums))


def test_entropy_of_known_rows() -> None:
    uniform, hard = np.full((3, 4), 0.25, dtype=np.float32), np.eye(2, 4)
    assert attention_entropy([uniform]) == pytest.approx(math.log(4))
    assert attention_entropy([hard]) == 0
    # A mean over rows, not over sentences; rows of zeros do not count.
    assert attention_entropy([uniform, np.eye(1, 4), np.zeros((5, 4))]) == pytest.approx(math.log(4) * 3 / 4)
    assert attention_entropy([np.zeros((0, 0))]) is None


def test_coverage_deficit_is_what_source_words_lack() -> None:
    # Columns receive 1.5, 0.5 and 0: deficits of 0, 0.5 and 1.
    weights = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], dtype=np.float32)
    assert coverage_deficit([weights]) == pytest.approx(1.5 / 3)
    assert coverage_deficit([np.eye(4)]) == 0
    # A mean over source words, not over sentences; a translation without words leaves all of its source out.
    assert coverage_deficit([np.eye(4), np.zeros((0, 2)), np.zeros((0, 0))]) == pytest.approx(2 / 6)
    assert coverage_deficit([np.zeros((0, 0))]) is None


def test_alignments_are_equal_when_all_of_them_is() -> None:
    one, two, other = (Alignment(["a"], ["b"], np.full((1, 1), weight)) for weight in (0.5, 0.5, 0.4))
    assert one == two
    assert hash(one) == hash(two)
    assert one != other
    assert one != Alignment(["c"], ["b"], one.weights)
    assert one != "a"
    assert len({one, two, other}) == 2


def test_parts_of_a_sentence_attend_to_themselves_alone() -> None:
    parts = [
        Alignment(["a", "b"], ["x"], np.array([[0.25, 0.75]])),
        Alignment([], [], np.zeros((0, 0))),
        Alignment(["c"], ["y", "z"], np.array([[1.0], [1.0]])),
    ]
    found = concatenate(parts)
    assert (found.source_words, found.target_words) == (["a", "b", "c"], ["x", "y", "z"])
    np.testing.assert_array_equal(found.weights, [[0.25, 0.75, 0], [0, 0, 1], [0, 0, 1]])


def test_pieces_of_east_asia_are_cut_into_characters() -> None:
    found = split_characters(
        Alignment(
            ["学生在河边", "。", "the", "แมว"],
            ["The", "買う"],
            np.array([[0.5, 0.25, 0.25, 0.0], [0.0, 1.0, 0.0, 0.0]]),
        )
    )
    assert found.source_words == ["学", "生", "在", "河", "边", "。", "the", "แมว"]
    assert found.target_words == ["The", "買", "う"]
    expected = [[0.1] * 5 + [0.25, 0.25, 0.0], [0.0] * 5 + [1.0, 0.0, 0.0], [0.0] * 5 + [1.0, 0.0, 0.0]]
    np.testing.assert_allclose(found.weights, expected)


@given(
    st.lists(st.text("ab猫犬か。\u3099é", min_size=1), max_size=5),
    st.lists(st.text("ab猫犬か。", min_size=1), max_size=5),
)
def test_cut_words_say_the_same_and_rows_keep_their_sum(sources: list[str], targets: list[str]) -> None:
    weights = np.random.default_rng(1).dirichlet(np.ones(max(1, len(sources))), len(targets))[:, : len(sources)]
    found = split_characters(Alignment(sources, targets, weights))
    assert "".join(found.source_words) == "".join(sources)
    assert "".join(found.target_words) == "".join(targets)
    assert found.weights.shape == (len(found.target_words), len(found.source_words))
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0 if sources else 0.0)


def test_other_words_are_left_as_they_are() -> None:
    alignment = Alignment(["a", "b."], ["ä"], np.ones((1, 2)) / 2)
    assert split_characters(alignment) is alignment
