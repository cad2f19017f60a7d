import io
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from nmt.config.schema import TokenizerConfig
from nmt.errors import UserError
from nmt.text.tokenizer import BOS, EOS, PAD, SPECIALS, UNK, Tokenizer, Tokenizers, build_tokenizers
from tests.runs import ROOT

LINES = [
    "the red dog sees a small house .",
    "a small dog runs to the red house .",
    "the houses are red , and the dogs are small .",
    "who sees the dog that runs to the house ?",
] * 3
TARGETS = ["le chien rouge voit une petite maison .", "un petit chien court à la maison rouge ."] * 3
KINDS = ("unigram", "bpe")


def learned(
    kind: str = "unigram", normalization: str = "identity", lines: list[str] = LINES, vocab_size: int = 8_000
) -> Tokenizer:
    return Tokenizer.train(lines, TokenizerConfig(kind=kind, normalization=normalization), vocab_size)


TOKENIZERS = {kind: learned(kind) for kind in KINDS}

# The word mark itself stands for a space, and lines hold no newlines: neither can come back as it was.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\u2581"), max_size=40)


def foreign_model(kind: str, **settings: Any) -> bytes:
    model = io.BytesIO()
    settings = {"vocab_size": 60} | settings
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        model_type=kind,
        hard_vocab_limit=False,
        minloglevel=2,
        **settings,
    )
    return model.getvalue()


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts)
def test_decode_inverts_encode(kind: str, text: str) -> None:
    text = " ".join(word for word in text.split(" ") if word)
    assert TOKENIZERS[kind].decode(TOKENIZERS[kind].encode([text])) == [text]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    ["", "🦊 👩‍👩‍👧 jumps", "Straße \u2028 x\u0085y\x0c", "中文 العربية ½ ﬁ", "<s> </s> <0xE2> <unk>", "▅ \x00 \t"],
)
def test_odd_characters_survive_and_are_never_unknown(kind: str, text: str) -> None:
    (ids,) = TOKENIZERS[kind].encode([text])
    assert UNK not in ids
    assert not {PAD, BOS, EOS} & set(ids)
    assert TOKENIZERS[kind].decode([ids]) == [text]


@pytest.mark.parametrize("kind", KINDS)
def test_specials_have_their_places(kind: str) -> None:
    assert TOKENIZERS[kind].pieces([PAD, UNK, BOS, EOS]) == list(SPECIALS)
    assert TOKENIZERS[kind].decode([[BOS, *TOKENIZERS[kind].encode(["a dog"])[0], UNK, EOS, PAD]]) == ["a dog"]


def test_decode_gives_one_line_a_sentence() -> None:
    tokenizer = TOKENIZERS["bpe"]
    assert tokenizer.decode(tokenizer.encode(["a\nb"])) == ["a b"]
    assert tokenizer.decode([]) == []
    assert tokenizer.decode([[], [EOS]]) == ["", ""]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lines", [["a"], ["aaaa"] * 3, ["a b c d"] * 50, LINES])
def test_vocabulary_is_lowered_with_a_notice(kind: str, lines: list[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        tokenizer = learned(kind, lines=lines)
    assert 256 + len(SPECIALS) < len(tokenizer) < 8_000
    assert f"tokenizer.vocab_size lowered from 8000 to {len(tokenizer)}" in caplog.text
    assert tokenizer.decode(tokenizer.encode(lines)) == lines


@pytest.mark.parametrize("kind", KINDS)
def test_vocabulary_has_the_size_asked_for_where_it_can(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    words = [f"{a}{b}{c}" for a in "bcdfgklmnprst" for b in "aeiou" for c in "bdgklmnprst"]
    assert len(learned(kind, lines=[" ".join(words[i : i + 5]) for i in range(len(words) - 5)], vocab_size=400)) == 400
    assert not caplog.records


def test_too_many_characters_for_the_vocabulary() -> None:
    lines = ["".join(chr(0x4E00 + 10 * i + j) for j in range(10)) for i in range(30)]
    with pytest.raises(
        UserError, match=r"tokenizer.vocab_size=300 is too small.* 56\d; raise it.*character_coverage"
    ) as caught:
        learned(lines=lines, vocab_size=300)
    assert "\n" not in str(caught.value)


def test_no_text() -> None:
    with pytest.raises(UserError, match=r"no text to learn subwords from"):
        learned(lines=["", "  "])


@pytest.mark.parametrize("kind", KINDS)
def test_learning_is_deterministic(kind: str) -> None:
    assert learned(kind).model == learned(kind).model


def test_long_lines_are_learned_from() -> None:
    tokenizer = learned("bpe", lines=["xyz " * 5_000, "a b"])
    assert len(tokenizer.encode(["xyz"])[0]) == 1


def test_normalization_is_configurable() -> None:
    assert learned(normalization="nmt_nfkc_cf").decode(
        learned(normalization="nmt_nfkc_cf").encode(["The ﬁne DOG"])
    ) == ["the fine dog"]


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**40), alpha=st.floats(0.05, 0.9))
def test_sampling_is_reproducible_and_keeps_the_text(kind: str, seed: int, alpha: float) -> None:
    tokenizer = TOKENIZERS[kind]
    sampled = tokenizer.sample(LINES, alpha, seed)
    tokenizer.sample(LINES, alpha, seed + 1)
    assert tokenizer.sample(LINES, alpha, seed) == sampled
    assert tokenizer.decode(sampled) == LINES


@pytest.mark.parametrize("kind", KINDS)
def test_sampling_varies_by_seed_and_is_off_at_zero(kind: str) -> None:
    tokenizer = TOKENIZERS[kind]
    assert len({str(tokenizer.sample(LINES, 0.3, seed)) for seed in range(5)}) == 5
    assert tokenizer.sample(LINES, 0.0, 1) == tokenizer.encode(LINES)


@pytest.mark.parametrize("kind", KINDS)
def test_sampling_is_the_same_in_another_process(kind: str, tmp_path: Path) -> None:
    TOKENIZERS[kind].save(tmp_path / "model")
    code = (
        "import json, sys; from nmt.text.tokenizer import Tokenizer; "
        "print(Tokenizer.load(sys.argv[1]).sample(json.loads(sys.argv[2]), 0.3, 5))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "model"), json.dumps(LINES)]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert json.loads(printed) == TOKENIZERS[kind].sample(LINES, 0.3, 5)


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts)
def test_words_are_those_of_the_text(kind: str, text: str) -> None:
    words = [word for word in text.split(" ") if word]
    (ids,) = TOKENIZERS[kind].encode([" ".join(words)])
    merged, word_of_piece = TOKENIZERS[kind].words(ids)
    assert merged == words
    assert len(word_of_piece) == len(ids)
    assert sorted(set(word_of_piece)) == list(range(len(words)))
    assert word_of_piece == sorted(word_of_piece)
    for i, word in enumerate(words):
        assert (
            "".join(TOKENIZERS[kind].decode([[p for p, w in zip(ids, word_of_piece, strict=True) if w == i]])) == word
        )


NORMALIZING = {kind: learned(kind, "nmt_nfkc") for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("line", "owners"),
    [
        ("the dog", ["the", "dog"]),
        ("the´dog  sees", ["the´dog", "sees"]),  # the accent becomes a space and a mark
        ("a\u200bred dog", ["a\u200bred", "dog"]),  # an invisible space becomes a space
        (" ﬁ\u3000１２ ½", ["ﬁ", "１２", "½"]),
        ("é red，é", ["é", "red，é"]),  # spelt in bytes
        ("", []),
    ],
)
def test_with_its_line_words_are_those_of_the_text(kind: str, line: str, owners: list[str]) -> None:
    tokenizer = NORMALIZING[kind]
    (ids,) = tokenizer.encode([line])
    words, word_of_piece = tokenizer.words(ids, line)
    assert words == line.split() == owners
    assert tokenizer.parts(ids, line) == (words, word_of_piece)
    # Each word's pieces are those that it has by itself, or would have behind a mark.
    for number, word in enumerate(owners):
        pieces = [i for i, owner in zip(ids, word_of_piece, strict=True) if owner == number]
        assert tokenizer.decode([pieces]) == tokenizer.decode(tokenizer.encode([word]))


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts)
def test_the_words_of_any_text_are_its_own_or_those_of_the_model(kind: str, text: str) -> None:
    tokenizer = NORMALIZING[kind]
    (ids,) = tokenizer.encode([text])
    words, word_of_piece = tokenizer.words(ids, text)
    assert words in (text.split(), tokenizer.words(ids)[0])
    assert len(word_of_piece) == len(ids)
    assert sorted(set(word_of_piece)) == list(range(len(words)))
    assert word_of_piece == sorted(word_of_piece)


def test_where_the_text_does_not_tell_words_are_those_of_the_model() -> None:
    tokenizer = NORMALIZING["unigram"]
    (ids,) = tokenizer.encode(["the´dog"])
    assert tokenizer.words(ids, "dog")[0] == tokenizer.words(ids)[0]  # of another text
    line = "the \u200e dog"  # a word that normalization takes away
    (ids,) = tokenizer.encode([line])
    assert tokenizer.words(ids, line)[0] == ["the", "dog"]


def test_words_of_anything_a_model_may_produce() -> None:
    tokenizer = TOKENIZERS["unigram"]
    (mark,) = (i for i in range(len(tokenizer)) if tokenizer.pieces([i]) == ["\u2581"])
    (a_dog,) = tokenizer.encode(["a dog"])
    assert tokenizer.words([]) == ([], [])
    assert tokenizer.words([mark, *a_dog, EOS])[0] == ["a", "dog", "</s>"]
    assert tokenizer.words([BOS, *a_dog])[0] == ["<s>", "a", "dog"]
    e_acute, truncated = ([4 + byte for byte in data] for data in ("é".encode(), b"\xe2\x82"))
    assert tokenizer.words([*a_dog, *e_acute])[0] == ["a", "dogé"]
    assert tokenizer.words(truncated) == (["\ufffd"], [0, 0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"pad_id": 3, "unk_id": 0, "bos_id": 1, "eos_id": 2},
        {"bos_id": -1, "eos_id": -1},
        {
            "pad_id": 0,
            "unk_id": 3,
            "bos_id": 1,
            "eos_id": 2,
            "pad_piece": "[PAD]",
            "byte_fallback": True,
            "vocab_size": 330,
        },
    ],
)
def test_foreign_models_are_renumbered(kind: str, settings: dict[str, Any]) -> None:
    model = foreign_model(kind, **settings)
    original = sentencepiece.SentencePieceProcessor(model_proto=model)
    tokenizer = Tokenizer(model)
    assert (tokenizer._processor.pad_id(), tokenizer._processor.unk_id()) == (PAD, UNK)
    assert (tokenizer._processor.bos_id(), tokenizer._processor.eos_id()) == (BOS, EOS)
    assert len({*tokenizer.pieces(range(len(tokenizer)))}) == len(tokenizer)
    for line in (*LINES, "un dog Ö"):
        (ids,) = tokenizer.encode([line])
        assert tokenizer.pieces(ids) == [original.id_to_piece(i) for i in original.encode(line)]
    assert tokenizer.decode(tokenizer.encode(LINES)) == LINES
    assert Tokenizer(tokenizer.model).model == tokenizer.model


@pytest.mark.parametrize("content", [b"", b"no model", b"\x00" * 100])
def test_not_a_model(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "some.model").write_bytes(content)
    with pytest.raises(UserError, match=r"some\.model: not a sentencepiece model"):
        Tokenizer.load(tmp_path / "some.model")


def test_no_model(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read the sentencepiece model .*none.model: No such file"):
        Tokenizer.load(tmp_path / "none.model")


@pytest.mark.parametrize("joint", [True, False])
def test_saving_and_loading(joint: bool, tmp_path: Path) -> None:
    tokenizers = build_tokenizers(LINES, TARGETS, TokenizerConfig(joint=joint))
    tokenizers.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == (
        ["joint.model"] if joint else ["source.model", "target.model"]
    )
    loaded = Tokenizers.load(tmp_path)
    assert loaded.joint == tokenizers.joint == joint
    assert loaded.source.encode(LINES) == tokenizers.source.encode(LINES)
    assert loaded.target.decode(loaded.target.encode(TARGETS)) == TARGETS


def test_loading_from_a_folder_without_models(tmp_path: Path) -> None:
    TOKENIZERS["bpe"].save(tmp_path / "source.model")
    with pytest.raises(UserError, match=r"no tokenizer in .*needs joint.model, or source.model and target.model"):
        Tokenizers.load(tmp_path)


def test_a_joint_vocabulary_knows_both_sides() -> None:
    joint = build_tokenizers(LINES, TARGETS, TokenizerConfig(joint=True)).source
    separate = build_tokenizers(LINES, TARGETS, TokenizerConfig(joint=False))
    assert not any("<0x" in piece for piece in joint.pieces(joint.encode(["houses à"])[0]))
    assert any("<0x" in piece for piece in separate.source.pieces(separate.source.encode(["à"])[0]))


def test_pretrained_models(tmp_path: Path) -> None:
    for kind in KINDS:
        (tmp_path / f"{kind}.model").write_bytes(foreign_model(kind))
    unigram, bpe = (str(tmp_path / f"{kind}.model") for kind in KINDS)
    separate = build_tokenizers(LINES, TARGETS, TokenizerConfig(joint=False, source_model=unigram))
    assert separate.source.model == Tokenizer.load(unigram).model
    assert separate.target.decode(separate.target.encode(TARGETS)) == TARGETS
    joint = build_tokenizers(LINES, TARGETS, TokenizerConfig(joint=True, target_model=bpe))
    assert joint.joint
    assert joint.source.model == Tokenizer.load(bpe).model
    with pytest.raises(UserError, match=r"joint=true takes one model.*set tokenizer.joint=false"):
        build_tokenizers(LINES, TARGETS, TokenizerConfig(joint=True, source_model=unigram, target_model=bpe))


def test_a_line_with_the_character_that_sentencepiece_reserves_is_learned_from() -> None:
    lines = ["a b c d", "a b\u2585c \u732b \u732b"] * 20
    tokenizer = Tokenizer.train(lines, TokenizerConfig(vocab_size=300), 300)
    assert tokenizer.id_of("\u732b") is not None or tokenizer.id_of("\u2581\u732b") is not None
    assert len(Tokenizer.train(["a\u2585b"] * 9, TokenizerConfig(vocab_size=300), 300)) > 256
