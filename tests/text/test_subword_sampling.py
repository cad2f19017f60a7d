"""Our sampling against sentencepiece's segmentation, and against all segmentations of a word."""

import io
import itertools
import math
import random
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from nmt.text import subword_sampling
from nmt.text.subword_sampling import BPE, UNKNOWN_PENALTY, Unigram
from nmt.text.vocabulary import WORD_MARK

LINES = [
    "the lower river runs slowly past the newest window",
    "a widest garden, the lowest morning; slow rivers run",
    "new windows show the widening gardens in the morning",
    "she knows the newer letters show a slowly growing garden",
] * 5
ODD = ["", "  two   spaces ", "東京 \U0001f600", "caf\u00e9 … x\u00a0y", "low" * 20, WORD_MARK * 3 + "a"]
words = st.text(alphabet="lownrtheisdg ", max_size=12)


def learn(kind: str, *, byte_fallback: bool = True, defined: tuple[str, ...] = ()) -> Any:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        model_type=kind,
        vocab_size=340,
        hard_vocab_limit=False,
        byte_fallback=byte_fallback,
        user_defined_symbols=list(defined),
        num_threads=1,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


PROCESSORS = {"unigram": learn("unigram"), "bpe": learn("bpe")}


def segmentations(word: str, pieces: set[str]) -> Iterator[list[str]]:
    """Every way to cut a word into pieces or single characters."""
    for cuts in itertools.product((False, True), repeat=len(word) - 1):
        places = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(word)]
        parts = [word[start:end] for start, end in itertools.pairwise(places)]
        if all(part in pieces or len(part) == 1 for part in parts):
            yield parts


def spelt(sampler: Unigram | BPE, parts: list[str]) -> tuple[int, ...]:
    return tuple(i for part in parts for i in sampler._spell(part))


def distance(counts: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> float:
    """Total variation between frequencies and probabilities."""
    total = sum(counts.values())
    return sum(abs(counts[key] / total - expected.get(key, 0.0)) for key in {*counts, *expected}) / 2


@given(line=words)
def test_bpe_without_dropout_is_sentencepieces(line: str) -> None:
    sampler = BPE(PROCESSORS["bpe"], 0.5)
    found = [i for word in sampler._words(line) for i in sampler._merged(word)[0]]
    assert found == PROCESSORS["bpe"].encode(line)


@pytest.mark.parametrize("line", [*LINES[:4], *ODD])
def test_nothing_is_left_to_chance_at_the_ends_of_alpha(line: str) -> None:
    assert BPE(PROCESSORS["bpe"], 1e-12).sample([line], 3) == [PROCESSORS["bpe"].encode(line)]
    assert Unigram(PROCESSORS["unigram"], 1e4).sample([line], 3) == [PROCESSORS["unigram"].encode(line)]
    characters = BPE(PROCESSORS["bpe"], 1.0)
    (found,) = characters.sample([line], 3)
    assert found == [i for letter in PROCESSORS["bpe"].normalize(line) for i in characters._spell(letter)]


@pytest.mark.parametrize(("kind", "alpha"), [("unigram", 0.1), ("bpe", 0.4)])
def test_the_text_stays_the_same(kind: str, alpha: float) -> None:
    processor, lines = PROCESSORS[kind], [*LINES[:4], *ODD]
    sampler = {"unigram": Unigram, "bpe": BPE}[kind](processor, alpha)
    for seed in range(5):
        found = sampler.sample(lines, seed)
        assert found == sampler.sample(lines, seed)
        assert processor.decode(found) == processor.decode(processor.encode(lines))


@pytest.mark.parametrize("alpha", [0.1, 0.7, 1.0])
def test_unigram_segmentations_are_as_likely_as_they_should_be(alpha: float) -> None:
    sampler = Unigram(PROCESSORS["unigram"], alpha)
    word = f"{WORD_MARK}lowest東"
    unknown = min(sampler.scores.values()) - UNKNOWN_PENALTY
    weights = {
        spelt(sampler, parts): math.exp(alpha * sum(sampler.scores.get(part, unknown) for part in parts))
        for parts in segmentations(word, set(sampler.ids))
    }
    expected = {key: weight / sum(weights.values()) for key, weight in weights.items()}
    generator = random.Random(1)
    counts = Counter(tuple(sampler._draw(word, generator)) for _ in range(20_000))
    assert len(expected) > 3
    assert distance(counts, expected) < 0.03


def test_lines_without_spaces_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a word of its own, of a hundred characters; what is drawn does not depend on what is kept."""
    generator = random.Random(1)
    lines = ["".join(generator.choices("lownrtheisdg", k=100)) for _ in range(30)]
    drawn = Unigram(PROCESSORS["unigram"], 0.2).sample(lines, 1)
    monkeypatch.setattr(subword_sampling, "CACHED_CHARACTERS", 500, raising=False)
    tracemalloc.start()
    sampler = Unigram(PROCESSORS["unigram"], 0.2)
    before = tracemalloc.get_traced_memory()[0]
    assert sampler.sample(lines, 1) == drawn
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 1_500 * 500


def test_an_unknown_character_is_less_likely_than_any_piece() -> None:
    """10 nats below the least likely one, as in sentencepiece: a piece that has it is taken, however unlikely."""
    sampler = Unigram(PROCESSORS["unigram"], 1.0)
    assert sampler.unknown == min(sampler.scores.values()) - 10.0
    least = min(sampler.scores, key=sampler.scores.__getitem__)
    sampler.ids, sampler.scores = {least: 7}, {least: sampler.scores[least]}
    sampler._spellings = {least: [7]}
    word = least[0] + "東" if len(least) == 1 else least
    assert 7 in sampler._draw(word, random.Random(1))


@pytest.mark.parametrize(
    ("kind", "sampler", "alpha"), [("unigram", Unigram, 0.1), ("bpe", BPE, 0.3), ("bpe", BPE, 1.0)]
)
def test_a_piece_that_was_defined_is_never_divided(kind: str, sampler: type[Unigram | BPE], alpha: float) -> None:
    """Such as the mark of a language, which every translation has whole; nor is anything merged with it."""
    processor = learn(kind, defined=("<2fr>", "<2frow>"))
    defined = {processor.piece_to_id(piece) for piece in ("<2fr>", "<2frow>")}
    lines = ["<2fr> the window", "slow<2frow>low <2fr>low"]
    exact = [[i for i in ids if i in defined] for ids in processor.encode(lines)]
    assert [len(ids) for ids in exact] == [1, 2]
    drawn = sampler(processor, alpha)
    for seed in range(50):
        found = drawn.sample(lines, seed)
        assert [processor.decode(ids) for ids in found] == [processor.decode(ids) for ids in processor.encode(lines)]
        if kind == "bpe":  # unigram may take the characters, as sentencepiece may
            assert [[i for i in ids if i in defined] for ids in found] == exact
    if kind == "bpe":
        assert BPE(processor, 1e-12).sample(lines, 3) == processor.encode(lines)


@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_bpe_segmentations_are_as_likely_as_sentencepiece_has_them(alpha: float) -> None:
    sampler, processor = BPE(PROCESSORS["bpe"], alpha), PROCESSORS["bpe"]
    generator = random.Random(1)
    mine = Counter(tuple(sampler._draw(f"{WORD_MARK}window", generator)) for _ in range(8_000))
    drawn = processor.encode(["window"] * 8_000, enable_sampling=True, alpha=alpha, nbest_size=-1, num_threads=1)
    theirs = {key: count / 8_000 for key, count in Counter(map(tuple, drawn)).items()}
    assert len(theirs) > 3
    assert distance(mine, theirs) < 0.05


@pytest.mark.parametrize(("kind", "sampler", "alpha"), [("unigram", Unigram, 1e4), ("bpe", BPE, 1e-12)])
def test_unknown_characters_in_a_row_are_one_without_bytes(kind, sampler, alpha) -> None:
    processor = learn(kind, byte_fallback=False)
    lines = ["the 中文中 window é", "中文", "slow中文slow 中 文"]
    expected = processor.encode(lines)
    assert any(processor.unk_id() in ids for ids in expected)
    assert sampler(processor, alpha).sample(lines, 3) == expected
