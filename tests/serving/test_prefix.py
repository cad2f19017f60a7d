"""Forced beginnings and next words, against forced decoding of whole targets."""

import copy
import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config.schema import ModelConfig, SearchConfig, TokenizerConfig
from nmt.data.batch import collate
from nmt.errors import UserError
from nmt.models.build import build_model
from nmt.search.hypothesis import EOS, UNK
from nmt.serving.forced_search import ForcedSearch
from nmt.serving.prefix import NextWord, next_word, next_words, prefix_ids, translate_with
from nmt.serving.requests import TranslationRequest
from nmt.serving.served_run import ServedRun, word_starts
from nmt.text.tokenizer import Tokenizer, build_tokenizers
from nmt.text.vocabulary import WORD_MARK, Vocabulary
from nmt.translation import join_translations
from nmt.translator import Translation, Translator
from tests.sentences import SENTENCE


@pytest.fixture
def translator(run: ServedRun) -> Translator:
    return run.translator


def continued(translator: Translator, sentence: str, prefix: list[int], n: int) -> list[Translation]:
    return translate_with(translator, ForcedSearch(translator.model, prefix, records=False), sentence, prefix, n)


def log_prob(translator: Translator, sentence: str, ids: list[int]) -> float:
    """log p of a target as it is given, without the end mark."""
    source = translator.tokenizers.source.encode([sentence])[0]
    sides = [np.asarray(side, dtype=np.int32) for side in (source, ids)]
    found = translator.model.log_probs(collate([sides[0]], [sides[1]], np.zeros(1, dtype=np.int64)))
    return float(found[0, : len(ids)].detach().sum())


def test_a_prefix_is_kept_and_scores_are_those_of_the_whole(translator: Translator) -> None:
    target = translator.tokenizers.target
    other = translator.translate(["He sleeps."])[0]
    for length in range(1, len(other.pieces) + 1):
        prefix = prefix_ids(target, other.pieces[:length])
        found = continued(translator, SENTENCE, prefix, 3)
        assert all(each.pieces[:length] == other.pieces[:length] for each in found)
        assert len({tuple(each.pieces) for each in found}) == len(found)
        for each in found:
            whole = [*prefix_ids(target, each.pieces), EOS]
            assert each.log_prob == pytest.approx(log_prob(translator, SENTENCE, whole), abs=1e-3)


def test_next_words_are_computed_in_the_precision_of_translations(translator: Translator) -> None:
    in_bf16 = copy.copy(translator)
    in_bf16.precision = "bf16"
    exact, rounded = (next_words(each, SENTENCE, [], 1)[0].probability for each in (translator, in_bf16))
    assert exact != rounded
    assert exact == pytest.approx(rounded, rel=0.1)


def test_the_greedy_translation_goes_on_as_it_was(run: ServedRun, translator: Translator) -> None:
    greedy = ServedRun.load(run.path, max_subwords=40, device="cpu", beam_size=1).translator
    best = greedy.translate([SENTENCE])[0]
    for length in range(len(best.pieces) + 1):
        ids = prefix_ids(greedy.tokenizers.target, best.pieces[:length])
        (found,) = continued(greedy, SENTENCE, ids, 1)
        assert (found.pieces, found.text) == (best.pieces, best.text)
        np.testing.assert_allclose(found.weights, best.weights, atol=1e-6)


def test_an_ended_prefix_is_the_translation(translator: Translator) -> None:
    target = translator.tokenizers.target
    ids = prefix_ids(target, [*target.pieces(target.encode(["il dort"])[0]), "</s>"])
    (found,) = continued(translator, SENTENCE, ids, 3)
    assert found.text == "il dort"


@pytest.mark.parametrize("prefix", ["", "elle", "elle aide son"])
def test_probabilities_of_next_words_are_those_of_their_pieces(translator: Translator, prefix: str) -> None:
    target = translator.tokenizers.target
    ids = prefix_ids(target, prefix)
    words = next_words(translator, SENTENCE, ids, 8)
    assert [word.probability for word in words] == sorted((word.probability for word in words), reverse=True)
    assert 0 < sum(word.probability for word in words) <= 1 + 1e-6
    assert len({(word.word, word.joins) for word in words}) == len(words) == 8
    of_one_segmentation: defaultdict[int, bool] = defaultdict(
        bool
    )  # whether there is such a word, by its number of pieces
    for word in words:
        pieces = prefix_ids(target, word.pieces)
        assert pieces[: len(ids)] == ids
        share = log_prob(translator, SENTENCE, pieces) - log_prob(translator, SENTENCE, ids)
        # A word of several segmentations has the sum of their probabilities.
        assert word.probability >= math.exp(share) - 1e-5
        of_one_segmentation[len(pieces) - len(ids)] |= word.probability <= math.exp(share) + 1e-5
    assert all(of_one_segmentation.values())


def test_words_that_are_equal_make_room_for_others(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here words with the same first letter are, of which the twelve best subwords have few."""

    def first_letter(*arguments: Any) -> NextWord:
        word = next_word(*arguments)
        return word._replace(word=word.word[:1].lower(), joins=False)

    monkeypatch.setattr("nmt.serving.prefix.next_word", first_letter)
    words = next_words(translator, SENTENCE, [], 12)
    assert len({word.word for word in words}) == len(words) == 12
    monkeypatch.setattr("nmt.serving.prefix.MOST_WIDENING", 1)
    assert len(next_words(translator, SENTENCE, [], 12)) < 12


def test_the_most_probable_next_word_is_the_greedy_one(run: ServedRun) -> None:
    greedy = ServedRun.load(run.path, max_subwords=40, device="cpu", beam_size=1).translator
    best = greedy.translate([SENTENCE])[0]
    target = greedy.tokenizers.target
    starts = word_starts(best)
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    for word, start in zip(best.target_words, starts, strict=True):
        offered = next_words(greedy, SENTENCE, prefix_ids(target, best.pieces[:start]), 5)
        assert word in {each.word for each in offered}


def test_a_prefix_begins_a_long_text_once(run: ServedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is cut into parts otherwise: each of them would begin with it; so would the tree be one of a part."""
    monkeypatch.setattr(run.translator, "longest_source", len(run.translator.tokenizers.source.encode([SENTENCE])[0]))
    text = " ".join([SENTENCE] * 3)
    prefix = run.translator.translate(["He sleeps."])[0].pieces[:2]
    assert run.translate(TranslationRequest(text))["parts"] == 3
    found = run.translate(TranslationRequest(text, prefix=prefix, tree=True, n_best=2))
    assert found["parts"] == 1
    for each, end in zip(found["n_best"], found["tree"]["ends"], strict=True):
        assert each["pieces"][:2] == prefix
        path: list[str] = []
        node = end["node"]
        while node >= 0:
            path.insert(0, found["tree"]["nodes"][node]["piece"])
            node = found["tree"]["nodes"][node]["parent"]
        assert path == each["pieces"][: len(path)]
        assert len(path) >= 2
    in_parts = run.translate(TranslationRequest(text, saliency=True, tree=True))
    assert in_parts["parts"] == 3
    assert not {"saliency", "tree"} & in_parts.keys()  # the model has never read the whole of it
    assert len(in_parts["starts"]) == len(in_parts["target_words"])


def test_a_word_that_was_copied_is_answered() -> None:
    """The pieces of the translation say that it is unknown, which a prefix may not."""
    lines = ["the cat sleeps", "a dog runs"]
    tokenizers = build_tokenizers(lines, lines, TokenizerConfig(kind="whitespace", joint=False))
    torch.manual_seed(1)
    shape = ModelConfig(embedding_size=8, hidden_size=8, readout="linear")
    model = build_model(shape, *map(len, (tokenizers.source, tokenizers.target)), joint=False)
    with torch.no_grad():
        model.output.bias[UNK] = 5.0
    search = SearchConfig(replace_unknown=True, max_length_offset=3, max_length_ratio=0.1)
    copying = ServedRun("run", Translator(model, tokenizers, search, torch.device("cpu")), ("en", "en"), 40)
    found = copying.translate(TranslationRequest("the zebra sleeps", tree=True, n_best=2))
    assert "<unk>" in found["pieces"]
    assert "<unk>" not in found["text"]
    assert len(found["starts"]) == len(found["target_words"])
    offered = copying.next(TranslationRequest("the zebra sleeps", n_best=3))["words"]
    (copy,) = [each for each in offered if each["pieces"] == ["<unk>"]]
    assert copy["word"] in ("the", "zebra", "sleeps")
    (forced,) = translate_with(
        copying.translator, ForcedSearch(model, [UNK], records=False), "the zebra sleeps", [UNK], 1
    )
    assert forced.text.split()[0] == copy["word"]
    assert copy["probability"] >= math.exp(log_prob(copying.translator, "the zebra sleeps", [UNK])) - 1e-5
    further = copying.translate(TranslationRequest("the zebra sleeps", prefix=found["pieces"][:2]))
    assert further["pieces"][:2] == found["pieces"][:2]


def test_a_word_that_is_copied_after_a_word_mark_is_not_the_end() -> None:
    """The mark is a piece of its own, and the unknown piece after it a word of its own."""
    lines = ["\u2581 the \u2581dog \u2581 sleep s"]
    tokenizers = build_tokenizers(lines, lines, TokenizerConfig(kind="whitespace"))
    torch.manual_seed(1)
    model = build_model(ModelConfig(embedding_size=8, hidden_size=8), *2 * [len(tokenizers.target)], joint=True)
    translator = Translator(model, tokenizers, SearchConfig(replace_unknown=True), torch.device("cpu"))
    sentence = "\u2581cat"
    words = next_words(translator, sentence, [], 20)
    assert "<unk>" not in [piece for each in words if not each.word for piece in each.pieces]
    (copied,) = [each for each in words if each.pieces[-1] == "<unk>"]
    assert copied.word == "cat"
    both = ([UNK], translator.tokenizers.target.ids_of([WORD_MARK, "<unk>"]))  # one word, with and without a mark
    assert copied.probability == pytest.approx(
        sum(math.exp(log_prob(translator, sentence, pieces)) for pieces in both), rel=1e-4
    )


def in_characters(line: str, tokenizer: Tokenizer | Vocabulary) -> Translation:
    """Return a line of Chinese as a translation of itself."""
    ids = tokenizer.encode([line])[0]
    characters, words = list(line), tokenizer.display_words(ids)
    return Translation(characters, characters, np.eye(len(line)), line, line, 0.0, 0.0, tokenizer.pieces(ids), words)


def test_words_begin_in_pieces_that_have_them_where_parts_are_joined_without_a_space() -> None:
    lines = ["猫看见狗。", "大狗睡觉。", "猫睡觉。"] * 5
    tokenizer = build_tokenizers(lines, lines, TokenizerConfig(vocab_size=330)).target
    parts = [in_characters(line, tokenizer) for line in lines[:3]]
    joined = join_translations("".join(lines[:3]), parts)
    starts = word_starts(joined)
    assert joined.text == "猫看见狗。大狗睡觉。猫睡觉。"
    assert starts == sorted(starts)
    for word, start in zip(joined.target_words, starts, strict=True):
        piece = joined.pieces[start]
        assert word in (piece if piece != WORD_MARK else joined.pieces[start + 1])


def test_words_after_a_character_in_bytes_begin_where_they_do() -> None:
    """Each of its first bytes decodes to a character of its own, until the last makes them one."""
    lines = ["猫看见狗。", "大狗睡觉。", "猫睡觉。"] * 5
    found = in_characters("猫𠮷看见狗。", build_tokenizers(lines, lines, TokenizerConfig(vocab_size=330)).target)
    assert [found.pieces[start] for start in word_starts(found)[1:3]] == ["<0xF0>", "看"]


@pytest.mark.parametrize("sentences", [1, 3])
def test_words_after_a_copy_begin_where_they_do(sentences: int) -> None:
    """A copy may be longer than `<unk>`, which is the text of its piece, and is cut into characters in some scripts."""
    shown, pieces = ["the", "教", "授", "sleeps"], ["the", "<unk>", "sleeps"]
    words = ["the", "教授", "sleeps"], [0, 1, 2]
    part = Translation(["教", "授"], shown, np.ones((4, 2)), "教授", "the 教授 sleeps", 0.0, 0.0, pieces, words)
    joined = join_translations("教授", [part] * sentences) if sentences > 1 else part
    assert word_starts(joined) == [3 * n + start for n in range(sentences) for start in (0, 1, 1, 2)]


def test_the_end_is_offered(translator: Translator) -> None:
    best = translator.translate([SENTENCE])[0]
    ids = prefix_ids(translator.tokenizers.target, best.pieces)
    (end,) = [word for word in next_words(translator, SENTENCE, ids, 10) if not word.word]
    assert end.pieces == [*best.pieces, "</s>"]


def test_a_sentence_without_words_has_no_next_word(translator: Translator) -> None:
    assert next_words(translator, " ", [], 5) == []
    assert continued(translator, "", [9], 1)[0].text == ""


@pytest.mark.parametrize("prefix", [["no such piece"], ["<unk>"], ["<s>"], ["</s>", "▁il"]])
def test_a_prefix_that_cannot_be_is_refused(translator: Translator, prefix: list[str]) -> None:
    with pytest.raises(UserError, match="prefix: "):
        prefix_ids(translator.tokenizers.target, prefix)
