"""Words as aligners count them, by the text alone and between the pieces of a model."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.schema import TokenizerConfig
from nmt.text.tokenizer import Tokenizer
from nmt.text.vocabulary import Vocabulary
from nmt.text.words import cut_words, is_spaceless, plain_words, text_words, word_spans
from tests.template_pairs import template_pairs

# Words of each line, with a bar between them where no space is; the spaces are those of the line.
SPLIT = [
    "I ate a tomato|.",
    "\"|Hello|,|\" she said|; it's O'Neil's rock-'n'-roll (|2nd|)|.",
    "Dr. Smith of St. Ives lives in the U.S. He left|. She too|.",
    "They met at 5 p.m.",
    "She has plan B. and 5|.",
    "wait|... what|?|! He said|—|then|… no",
    "Comment ça va ? « Oui »|, l'homme|, aujourd'hui|.",
    "„|Hallo|!|“|, sagte er am 3. Mai zur Vor- und Nachspeise|.",
    "¿|Qué|? ¡|Hola|!",
    "50|% of $5 is 1,000.50 in C# word(s)|, (|a|) '|b|' 'tis dogs'",
    "hou@@ se &quot; @user .net .5",
    "القط يشتري|، الدراجة|؟",
    "बिल्ली सुबह नदी देखता है|।",
    "猫|3|天|后|买|旧|自|行|车|。",
    "他|说|:|“|Hello|!|”|……|好|。",
    "買|う|(|2024|年|)|、|ラ|ン|プ|。",
    "วั|น|นี้ น้ำ|เมื|อ|ง",
    "ភា|សា|ខ្មែ|រ ມັ|ນ မြ|န်|မာ",
    "a man in a t-shirt , mr. x. and &apos;s 28. .",  # tokenized: a period or a comma stands alone
    "es ist der 28.",
    "Es ist der 28|.",
    "Mrs. Two and Chap|. Two|.",  # an abbreviation has three letters at most
    "",
    "  ",
]


@pytest.mark.parametrize("line", SPLIT)
def test_words_of_a_line(line: str) -> None:
    assert text_words(line.replace("|", "")) == line.replace("|", " ").split()


lines = st.text(st.characters(codec="utf-8"), max_size=30) | st.text(
    st.sampled_from(list(" .,!?'\"()-—…abcABé3猫車はวันน้ำ。、「」क्षاب\u3000\u200d")), max_size=30
)


@given(lines)
def test_words_are_all_of_the_line_but_its_spaces_and_cut_what_spaces_part(line: str) -> None:
    spans = word_spans(line)
    words = text_words(line)
    assert [line[start:end] for start, end in spans] == words
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert "".join(words) == "".join(line.split())
    assert not any(any(map(str.isspace, word)) for word in words)
    assert len(words) >= len(line.split())


@given(st.lists(st.sampled_from(["cat", "Mr.", "28.", "s.", '"x', "t-shirt", "&quot;", "U.S.", "it's", "10.5", "?"])))
def test_text_that_is_tokenized_is_left_as_it_is(words: list[str]) -> None:
    assert text_words(" ".join([*words, "."])) == [*words, "."]


def test_only_scripts_without_spaces_are_counted_by_characters() -> None:
    assert plain_words("the cat, she") == ["the", "cat,", "she"]
    assert plain_words("看见 a cat,") == ["看", "见", "a", "cat", ","]
    assert is_spaceless(["看见", "สวัสดี", "a"])
    assert not is_spaceless(["the 猫", "a", "b"])
    assert not is_spaceless([])


CHINESE = [chinese for _, chinese in template_pairs(300)]
SENTENCES = [*CHINESE, *[english for english, _ in template_pairs(300)], "น้ำ", "wait"]
TOKENIZER = Tokenizer.train(SENTENCES, TokenizerConfig(), 500)


@pytest.mark.parametrize(
    "line", [*SENTENCES[:5], *SENTENCES[300:305], "They met (us)...", "Ｈｉ！ ﬁne…", "น้ำดี𠮷。", "½.", ""]
)
def test_words_of_a_model_are_cut_where_a_piece_ends(line: str) -> None:
    (ids,) = TOKENIZER.encode([line])
    words, word_of_piece = TOKENIZER.display_words(ids, line)
    assert "".join(words) == "".join(line.split())
    assert word_of_piece == sorted(word_of_piece)
    assert sorted(set(word_of_piece)) == list(range(len(words)))
    # Every cut of the text that is the end of a piece, and no other.
    ends = [sum(map(len, words[: word + 1])) for word in word_of_piece]
    by_text = text_words(line)
    allowed = {sum(map(len, by_text[:count])) for count in range(len(by_text) + 1)}
    assert set(ends) <= allowed


def test_pieces_are_the_words_of_a_script_without_spaces() -> None:
    line = "猫3天后买旧自行车。"
    (ids,) = TOKENIZER.encode([line])
    words, word_of_piece = TOKENIZER.display_words(ids, line)
    pieces = [piece.replace("\u2581", "") for piece in TOKENIZER.pieces(ids)]
    assert words == [piece for piece in pieces if piece]
    assert len(words) > 4
    assert TOKENIZER.display_words(ids) == (words, word_of_piece)  # as it is said of translations, without their text
    assert TOKENIZER.words(ids, line)[0] == TOKENIZER.parts(ids, line)[0] == [line]


def test_punctuation_is_apart_in_sources_and_translations() -> None:
    line = "The cat buys the old bicycle."
    (ids,) = TOKENIZER.encode([line])
    expected = ["The", "cat", "buys", "the", "old", "bicycle", "."]
    assert TOKENIZER.display_words(ids, line)[0] == TOKENIZER.display_words(ids)[0] == expected
    assert TOKENIZER.parts(ids, line)[0] == line.split()  # gold's words


def test_normalization_that_changes_lengths_moves_no_cut() -> None:
    """`…` becomes three periods, `ﬁ` two letters, and the vowel of น้ำ two signs."""
    for line, expected in (("ﬁne…", ["ﬁne", "…"]), ("½.", ["½", "."]), ("น้ำ。", ["น้ำ", "。"])):
        (ids,) = TOKENIZER.encode([line])
        assert TOKENIZER.display_words(ids, line)[0] == expected


def test_a_character_of_several_bytes_is_one_word() -> None:
    (ids,) = TOKENIZER.encode(["买𠮷。"])
    words, word_of_piece = TOKENIZER.display_words(ids, "买𠮷。")
    assert words[-2:] == ["𠮷", "。"]
    assert len(ids) >= 6
    assert len(word_of_piece) == len(ids)


def test_a_piece_is_never_divided() -> None:
    assert cut_words(["猫天后。"], [0, 0], [1, 4]) == (["猫", "天后。"], [0, 1])
    assert cut_words(["dog.", "A"], [0, 0, 1], [2, 4, 1]) == (["dog.", "A"], [0, 0, 1])
    assert cut_words(["dog.", "A"], [0, 0, 0, 1], [0, 3, 4, 1]) == (["dog", ".", "A"], [0, 0, 1, 2])


def test_white_space_in_a_word_is_no_word() -> None:
    """As a model without normalization has it: no space, to sentencepiece."""
    assert cut_words(["the\tbig\u00a0cat"], [0] * 5, [3, 4, 7, 8, 11]) == (["the", "big", "cat"], [0, 1, 1, 2, 2])
    assert cut_words(["买\u3000他"], [0, 0, 0], [1, 2, 3]) == (["买", "他"], [0, 1, 1])
    assert cut_words([], [], []) == ([], [])


def test_text_that_is_segmented_already_is_not_cut() -> None:
    vocabulary = Vocabulary.train(["the tom@@ ato. 猫天"], 100)
    (ids,) = vocabulary.encode(["the tom@@ ato. 猫天"])
    assert vocabulary.display_words(ids) == vocabulary.words(ids) == (["the", "tomato.", "猫天"], [0, 1, 1, 2])
