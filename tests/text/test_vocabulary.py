import itertools
import logging
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.schema import TokenizerConfig
from nmt.errors import UserError
from nmt.text.tokenizer import BOS, EOS, PAD, SPECIALS, UNK, Tokenizers, build_tokenizers
from nmt.text.vocabulary import Vocabulary

PLAIN = ["the red dog sees the house .", "the dog runs ."]
CONTINUED = ["the r@@ ed dog se@@ es the hou@@ se .", "the dog r@@ uns ."]
MARKED = ["▁the ▁re d ▁dog ▁se es ▁the ▁hou se ▁.", "▁the ▁dog ▁r uns ▁."]
SEGMENTED = {"plain": PLAIN, "continued": CONTINUED, "marked": MARKED}

# A word and where to cut it. Letters only, so that no word holds a mark or white space.
letters = st.text(st.characters(categories=["L"]), min_size=1, max_size=6)
words = st.lists(st.tuples(letters, st.sets(st.integers(1, 5))), min_size=1, max_size=6)


def cut(word: str, places: set[int]) -> list[str]:
    edges = [0, *sorted(place for place in places if place < len(word)), len(word)]
    return [word[a:b] for a, b in itertools.pairwise(edges)]


def segmented(style: str, parts: list[list[str]]) -> str:
    if style == "continued":
        return " ".join("@@ ".join(word) for word in parts)
    return " ".join(" ".join(("▁" + word[0], *word[1:])) for word in parts)


@pytest.mark.parametrize("style", ["continued", "marked"])
@given(words=words)
def test_pieces_are_joined_to_the_words_they_were_cut_from(style: str, words: list[tuple[str, set[int]]]) -> None:
    parts = [cut(word, places) for word, places in words]
    line = segmented(style, parts)
    vocabulary = Vocabulary.train([line], 10_000)
    (ids,) = vocabulary.encode([line])
    expected = [word for word, _ in words]
    assert vocabulary.pieces(ids) == line.split()
    assert vocabulary.decode([ids]) == vocabulary.detokenize([line]) == [" ".join(expected)]
    assert vocabulary.words(ids) == (expected, [n for n, word in enumerate(parts) for _ in word])
    assert vocabulary.words(ids, line) == vocabulary.words(ids)
    assert vocabulary.parts(ids, line) == (line.split(), list(range(len(ids))))


@pytest.mark.parametrize("style", SEGMENTED)
def test_every_style_of_marks_shows_the_same_text(style: str) -> None:
    vocabulary = Vocabulary.train(SEGMENTED[style], 10_000)
    assert vocabulary.decode(vocabulary.encode(SEGMENTED[style])) == PLAIN
    assert vocabulary.detokenize(SEGMENTED[style]) == vocabulary.detokenize(PLAIN) == PLAIN


def test_specials_have_their_places() -> None:
    vocabulary = Vocabulary.train([*PLAIN, "<s> </s> <pad> <unk>"], 10_000)
    assert vocabulary.pieces([PAD, UNK, BOS, EOS]) == list(SPECIALS)
    assert len(vocabulary) == 4 + 7
    assert vocabulary.encode(["<s> the </s>"]) == [[UNK, *vocabulary.encode(["the"])[0], UNK]]


def test_an_unknown_piece_shows_and_the_other_specials_do_not() -> None:
    for lines in SEGMENTED.values():
        vocabulary = Vocabulary.train(lines, 10_000)
        (ids,) = vocabulary.encode([lines[1].replace("dog", "cat")])
        decoded = vocabulary.decode([[BOS, *ids, EOS, PAD]])
        assert decoded == ["the <unk> runs ."]
        assert vocabulary.words(ids)[0] == decoded[0].split()
    assert vocabulary.decode([[], [EOS]]) == ["", ""]


@pytest.mark.parametrize(
    ("style", "line"),
    [("plain", "the cat runs ."), ("continued", "the c@@ at r@@ uns ."), ("marked", "▁the ▁c at ▁r uns ▁.")],
)
def test_a_text_says_what_its_unknown_pieces_were(style: str, line: str) -> None:
    vocabulary = Vocabulary.train(SEGMENTED[style], 10_000)
    (ids,) = vocabulary.encode([line])
    assert UNK in ids
    words, word_of_piece = vocabulary.words(ids, line)
    assert words == ["the", "cat", "runs", "."]
    assert word_of_piece == ([0, 1, 2, 3] if style == "plain" else [0, 1, 1, 2, 2, 3])


def test_no_piece_joins_a_special_one() -> None:
    vocabulary = Vocabulary("▁the\nx\n".encode())
    assert vocabulary.words([UNK, 5, EOS, 5, 5]) == (["<unk>", "x", "</s>", "xx"], [0, 1, 2, 3, 3])


def test_a_mark_that_stands_alone_opens_the_next_word() -> None:
    vocabulary = Vocabulary("▁\n▁the\nx\n".encode())
    assert vocabulary.words(vocabulary.encode(["▁ x ▁the"])[0]) == (["x", "the"], [0, 0, 1])
    assert vocabulary.words(vocabulary.encode(["▁ ▁the x"])[0]) == (["thex"], [0, 0, 0])
    assert vocabulary.decode(vocabulary.encode(["x ▁ ▁the"])) == ["x the"]


def test_a_stray_mark_does_not_join_plain_words() -> None:
    vocabulary = Vocabulary("".join(f"w{n}\n" for n in range(200)).encode() + "▁odd\n".encode())
    assert vocabulary.decode(vocabulary.encode(["w1 w2 ▁odd"])) == ["w1 w2 ▁odd"]


def test_the_commonest_pieces_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        vocabulary = Vocabulary.train(["b a c b", "a d"], len(SPECIALS) + 3)
    assert vocabulary.pieces(range(4, 7)) == ["a", "b", "c"]  # equally common ones by the alphabet
    assert vocabulary.encode(["a d"]) == [[4, UNK]]
    assert "kept the 3 commonest of 4 pieces: 83.33% of the text" in caplog.text
    assert "tokenizer.kind" not in caplog.text


def test_text_that_is_not_segmented_is_told(caplog: pytest.LogCaptureFixture) -> None:
    Vocabulary.train(["猫喝水。", "狗喝水。", "猫看狗。", "狗看猫。 a"], len(SPECIALS) + 3)
    assert "that is little: with tokenizer.kind=unigram, for text as it is, no word is unknown" in caplog.text


def test_vocabularies_of_other_toolkits() -> None:
    ours = Vocabulary(b"the\nhou@@\nse\n")
    assert Vocabulary(b"\xef\xbb\xbfthe\nhou@@\nse\n").model == ours.model  # a byte order mark
    for other in (b"<unk>\t0\n<s>\t0\n</s>\t0\nthe\t-3.1\nhou@@\t-4\nse\t-5", b"the 90\nhou@@ 7\nthe 2\n\nse 1\r\n"):
        assert Vocabulary(other).model == ours.model
    assert ours.model == b"the\nhou@@\nse\n"


@pytest.mark.parametrize(
    ("content", "message"), [(b"\xff\xfe", r"some\.txt: not a vocabulary: .* UTF-8"), (b"\n<s>\n", "there is no piece")]
)
def test_not_a_vocabulary(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        Vocabulary.load(tmp_path / "some.txt")
    with pytest.raises(UserError, match=r"cannot read the vocabulary .*none.txt: No such file"):
        Vocabulary.load(tmp_path / "none.txt")
    with pytest.raises(UserError, match="no text to take pieces from"):
        Vocabulary.train(["", "  "], 10)


@pytest.mark.parametrize("joint", [True, False])
def test_saving_and_loading(joint: bool, tmp_path: Path) -> None:
    tokenizers = build_tokenizers(MARKED, CONTINUED, TokenizerConfig(kind="whitespace", joint=joint))
    assert (
        len(tokenizers.target) == len({piece for line in (*MARKED * joint, *CONTINUED) for piece in line.split()}) + 4
    )
    tokenizers.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == (
        ["joint.vocab"] if joint else ["source.vocab", "target.vocab"]
    )
    loaded, ours = Tokenizers.load(tmp_path), tokenizers.source.model
    assert loaded.joint == joint
    for mine, other in ((loaded.source, tokenizers.source), (loaded.target, tokenizers.target)):
        assert mine.model == other.model == pickle.loads(pickle.dumps(mine)).model
    assert loaded.target.encode(CONTINUED) == tokenizers.target.encode(CONTINUED)
    for name in ("joint", "source", "target"):
        (tmp_path / f"{name}.vocab").write_bytes(ours)
    with pytest.raises(UserError, match=r"has joint\.vocab and source\.vocab: remove those that are not"):
        Tokenizers.load(tmp_path)


def test_a_vocabulary_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "pieces.txt").write_text("the\ndog\n", encoding="utf-8")
    config = TokenizerConfig(kind="whitespace", source_model=str(tmp_path / "pieces.txt"))
    tokenizers = build_tokenizers(PLAIN, PLAIN, config)
    assert tokenizers.joint
    assert tokenizers.source.encode(["the red dog"]) == [[4, UNK, 5]]


def test_segmented_text_cannot_be_segmented_anew() -> None:
    with pytest.raises(UserError, match=r"tokenizer\.sampling=0\.1 .*kind=whitespace\): set it to 0"):
        build_tokenizers(PLAIN, PLAIN, TokenizerConfig(kind="whitespace", sampling=0.1))
