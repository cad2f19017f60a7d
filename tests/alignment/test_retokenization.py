"""Weights and links between other words of the same texts."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nmt.alignment.pharaoh import Links, parse_pharaoh
from nmt.alignment.retokenization import retokenize_weights, split_links
from nmt.alignment.weights import Alignment


def cut(text: str, places: set[int]) -> list[str]:
    bounds = [0, *sorted(place for place in places if 0 < place < len(text)), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


cuts = st.sets(st.integers(1, 7))


@given(cuts, cuts, cuts, cuts, st.integers(0, 99))
def test_weights_between_other_words(one: set[int], two: set[int], three: set[int], four: set[int], seed: int) -> None:
    source, target = "猫三天后买了旧车", "abcdefgh"
    ours, theirs = (cut(source, one), cut(target, two)), (cut(source, three), cut(target, four))
    weights = np.random.default_rng(seed).random((len(ours[1]), len(ours[0])))
    weights /= weights.sum(axis=1, keepdims=True)
    found = retokenize_weights(Alignment(*ours, weights), *theirs)
    assert found is not None
    # By characters, in plain Python: a row and a share of the column for each.
    by_character = np.array([[weights[j, i] / len(ours[0][i]) for i in owners(ours[0])] for j in owners(ours[1])])
    expected = np.zeros((len(theirs[1]), len(theirs[0])))
    for row, j in enumerate(owners(theirs[1])):
        for column, i in enumerate(owners(theirs[0])):
            expected[j, i] += by_character[row, column] / len(theirs[1][j])
    np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    if ours == theirs:
        np.testing.assert_array_equal(found, weights)


def owners(words: list[str]) -> list[int]:
    return [number for number, word in enumerate(words) for _ in word]


def test_other_texts_have_no_weights() -> None:
    alignment = Alignment(["ab"], ["cd"], np.ones((1, 1)))
    assert retokenize_weights(alignment, ["a", "c"], ["cd"]) is None
    assert retokenize_weights(alignment, ["ab"], ["c", "", "d"]) is None


def test_links_of_words_with_their_marks_are_those_of_words_and_of_marks() -> None:
    source, target = ["(", "He", "sleeps", ".", ")"], ["Il", "dort", "."]
    found = split_links(parse_pharaoh("0-0 1-1 0?1"), source, target, "(He sleeps.)", "Il dort.")
    # `(` has no partner in `Il`, nor has `dort` one in `(He` but the word.
    assert found == Links(
        frozenset({(1, 0), (2, 1), (3, 2), (4, 2)}), frozenset({(1, 0), (2, 1), (3, 2), (4, 2), (1, 1), (0, 2)})
    )


def test_a_part_without_a_partner_of_its_kind_is_linked_as_it_is() -> None:
    assert split_links(parse_pharaoh("0-0"), ["a"], ["..."], "a", "...") == parse_pharaoh("0-0")


def test_links_between_spaces_stay_where_the_words_are_those_between_spaces() -> None:
    links = parse_pharaoh("0-1 1?0 2-2")
    assert split_links(links, ["a", "b.", "c"], ["x", "y", "z."], "a b. c", "x y z.") == links
    assert split_links(links, ["a", "b", "c"], ["x", "y", "z."], "a b. c", "x y z.") is None
    assert split_links(links, ["ab.c"], ["x", "y", "z."], "a b. c", "x y z.") is None
