"""Lines cut into parts, and their texts put together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.text.long_lines import CUT_FACTOR, cut_near_middle, join_texts, sentences, split_line

TEXT = st.text(alphabet="ab .,;!。、\u0301猫ä\u0e01", max_size=120)


def squeezed(text: str) -> str:
    return "".join(text.split())


@given(TEXT, st.integers(1, 30))
def test_parts_are_short_enough_and_nothing_is_lost(line: str, longest: int) -> None:
    parts = split_line(line, len, longest)
    if len(line.encode()) <= CUT_FACTOR * longest:
        assert parts == [line]
    elif len(line) > CUT_FACTOR * longest:
        assert len(parts) > 1 or len(parts[0]) <= longest
        assert all(0 < len(part) <= longest for part in parts) or (parts == [""] and line.isspace())
    assert squeezed("".join(parts)) == squeezed(line)


def test_lines_are_not_cut_without_a_limit() -> None:
    assert split_line("word " * 10_000, len, None) == ["word " * 10_000]


def test_white_space_alone_is_an_empty_line() -> None:
    assert split_line("\x85\u2028" * 50, len, 20) == [""]


def test_a_line_is_cut_where_it_is_far_too_long_only() -> None:
    line = "word " * 20
    assert split_line(line, lambda text: len(text.split()), 10) == [line]
    parts = split_line(line + "word", lambda text: len(text.split()), 10)
    assert len(parts) in (3, 4)
    assert " ".join(parts) == line + "word"


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("He came, and saw. She went away, he said", ("He came, and saw. ", "She went away, he said")),
        ("he came and saw, she went away again", ("he came and saw, ", "she went away again")),
        ("he came and saw she went", ("he came and ", "saw she went")),
        ("猫在睡觉。狗在花园里玩", ("猫在睡觉。", "狗在花园里玩")),
        ("猫在睡觉、狗在花园里玩", ("猫在睡觉、", "狗在花园里玩")),
        ("version 3.14159265 of it", ("version ", "3.14159265 of it")),
        ("abcdefgh", ("abcd", "efgh")),
        ("abce\u0301fgh", ("abce\u0301", "fgh")),
    ],
)
def test_a_line_is_cut_at_the_best_place_near_its_middle(line: str, parts: tuple[str, str]) -> None:
    place = cut_near_middle(line)
    assert (line[:place], line[place:]) == parts


def test_the_work_grows_with_the_length_of_a_line() -> None:
    """Characters that are segmented: each line is measured once a halving, of which there are few."""
    for length in (1_000, 10_000, 100_000):
        measured = 0

        def size(text: str) -> int:
            nonlocal measured
            measured += len(text)
            return len(text)

        split_line("x" * length, size, 100)
        assert measured <= 14 * length


@pytest.mark.parametrize(
    ("texts", "joined"),
    [
        ([], ""),
        (["a b", "c"], "a b c"),
        (["", "a", ""], "a"),
        (["猫睡。", "狗玩"], "猫睡。狗玩"),
        (["猫睡。", "dogs"], "猫睡。 dogs"),
        (["แมว", "หมา"], "แมวหมา"),
        (["고양이가", "잔다"], "고양이가 잔다"),
    ],
)
def test_texts_are_joined_as_their_script_is_written(texts: list[str], joined: str) -> None:
    assert join_texts(texts) == joined


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("He came. She went! Who? 3.5 km away", ["He came.", "She went!", "Who?", "3.5 km away"]),
        ("Dr. Smith came. He saw Mrs. Jones.", ["Dr. Smith came.", "He saw Mrs. Jones."]),
        ("猫在睡觉。狗在花园里玩！", ["猫在睡觉。", "狗在花园里玩！"]),
        ('"Go." he said. «No?» Yes', ['"Go."', "he said.", "«No?»", "Yes"]),
        ("बिल्ली सोती है। कुत्ता", ["बिल्ली सोती है।", "कुत्ता"]),
        ("ឆ្មាដេក។ គ្រូទៅផ្ទះ។", ["ឆ្មាដេក។", "គ្រូទៅផ្ទះ។"]),
        ("ကြောင်အိပ်တယ်။ ဆရာသွားတယ်။", ["ကြောင်အိပ်တယ်။", "ဆရာသွားတယ်။"]),
        ("بلی سوتی ہے۔ استاد گھر گیا۔", ["بلی سوتی ہے۔", "استاد گھر گیا۔"]),
        ("Կատուն քնում է։ Նա գնաց։", ["Կատուն քնում է։", "Նա գնաց։"]),
        ("no end", ["no end"]),
        ("", []),
    ],
)
def test_sentences(line: str, expected: list[str]) -> None:
    assert sentences(line) == expected


def test_a_far_too_long_line_is_cut_into_its_sentences() -> None:
    line = "He came and saw. " * 5
    assert split_line(line, len, 40) == ["He came and saw."] * 5
    assert split_line(line, len, 45) == [line]
    assert split_line(line, len, 10) == ["He came", "and saw."] * 5


@pytest.mark.parametrize("text", [".", "A. ", "…\u201d", "a", "猫。"])
def test_sentences_are_found_in_time_that_grows_with_the_line(text: str) -> None:
    """Half a million characters take a moment; read again at every mark, they would take hours."""
    line = text * (500_000 // len(text))
    assert "".join(sentences(line)).replace(" ", "") == line.replace(" ", "")
