import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.alignment.pharaoh import Links, check_links, format_pharaoh, format_words, parse_pharaoh
from nmt.errors import UserError

LINK_SETS = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)))
GOLD = st.tuples(LINK_SETS, LINK_SETS).map(lambda sets: Links(sets[0], sets[0] | sets[1]))


def test_parse_tells_sure_from_possible() -> None:
    links = parse_pharaoh("0-0 1?2 10-3")
    assert links.sure == {(0, 0), (10, 3)}
    assert links.possible == {(0, 0), (1, 2), (10, 3)}
    assert parse_pharaoh("") == Links(frozenset(), frozenset())


@given(GOLD)
def test_pharaoh_round_trip(links: Links) -> None:
    assert parse_pharaoh(format_pharaoh(links)) == links


def test_format_orders_by_number() -> None:
    assert format_pharaoh({(10, 0), (2, 1), (2, 0)}) == "2-0 2-1 10-0"


@pytest.mark.parametrize("item", ["3", "1-x", "1--2", "-1-2", "1-2-3", "1–2", "²-1", f"0-{'9' * 5000}"])
def test_parse_names_the_wrong_link(item: str) -> None:
    with pytest.raises(UserError, match=r"line 7: .* is not an alignment link: write source-target") as caught:
        parse_pharaoh(f"0-0 {item}", "line 7")
    assert repr(item[:40]) in str(caught.value)


def test_links_outside_the_pair() -> None:
    check_links(parse_pharaoh("2-1"), 3, 2)
    with pytest.raises(UserError, match="line 1: link 2-1 points outside the pair, which has 2 source and 3 target"):
        check_links(parse_pharaoh("0-0 2?1"), 2, 3, "line 1")


def test_words_hold_no_white_space() -> None:
    line = format_words(["a\tb", "c\u3000d", "e f"], ["g"])
    assert line == "a\u2581b c\u2581d e\u2581f ||| g"
    assert [len(side.split()) for side in line.split(" ||| ")] == [3, 1]


def test_an_empty_word_is_a_word() -> None:
    assert format_words(["a"], ["b", ""]) == "a ||| b \u2581"
    assert format_words([], []) == " ||| "


def test_words_hold_no_separator() -> None:
    assert format_words(["|||", "a|||b"], ["|", "||"]) == "¦¦¦ a¦¦¦b ||| | ||"
