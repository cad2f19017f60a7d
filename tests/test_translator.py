"""Translation from Python."""

import copy
import doctest
import itertools
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt.alignment.links import argmax_links
from nmt.alignment.weights import attention_entropy
from nmt.config.schema import ModelConfig, SearchConfig, TokenizerConfig
from nmt.data.batch import Batch, collate
from nmt.errors import UserError
from nmt.evaluation.saliency import Explainer
from nmt.fast.accelerate import decelerate, replaced_methods
from nmt.models.build import build_model
from nmt.models.seq2seq import Seq2Seq
from nmt.search import search as search_module
from nmt.text.tokenizer import UNK, build_tokenizers
from nmt.text.words import text_words
from nmt.translator import Translation, Translator
from tests.sentences import SENTENCES


def test_the_example_in_the_docstring(tiny_run: Path) -> None:
    (example,) = doctest.DocTestFinder(recurse=False).find(Translator, globs={"run": tiny_run})
    result = doctest.DocTestRunner().run(example)
    assert result.failed == 0
    assert result.attempted >= 3


def test_empty_sentences_give_empty_translations(translator: Translator) -> None:
    found = translator.translate(["", SENTENCES[0], " \t ", "\u3000"])
    assert [bool(each.text) for each in found] == [False, True, False, False]
    assert [each.source for each in found] == ["", SENTENCES[0], " \t ", "\u3000"]
    assert (found[0].score, found[0].pieces, found[0].weights.shape) == (0.0, [], (0, 0))
    assert translator.translate([]) == []


def test_the_n_best_are_sorted_and_distinct(translator: Translator) -> None:
    for found, best in zip(
        translator.translate_n_best(SENTENCES, 4),
        Translator.translate(with_beam(translator, 4), SENTENCES),
        strict=True,
    ):
        assert len(found) == 4
        assert len({tuple(each.pieces) for each in found}) == 4
        scores = [each.score for each in found]
        assert scores == sorted(scores, reverse=True)
        assert found[0].text == best.text


def test_the_n_best_have_different_texts(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces that differ by a mark spell one text, so the beam is widened until there are enough texts, or no more."""
    beams: list[int] = []
    one_by_one = translator._translate_sentences

    def two_by_two(sentences: Sequence[str], n: int, sampling: Any) -> list[list[Translation]]:
        beams.append(n)
        spelled = one_by_one(sentences, n, sampling)
        return [[replace(each, text=row[rank // 2].text) for rank, each in enumerate(row)] for row in spelled]

    monkeypatch.setattr(translator, "_translate_sentences", two_by_two)
    monkeypatch.setattr(translator, "search", replace(translator.search, beam_size=3))
    (found,) = translator.translate_n_best(SENTENCES[:1], 3)
    assert beams == [3, 6]
    assert len({each.text for each in found}) == len(found) == 3
    scores = [each.score for each in found]
    assert scores == sorted(scores, reverse=True)
    monkeypatch.setattr("nmt.translator.MOST_WIDENING", 1)
    assert len(translator.translate_n_best(SENTENCES[:1], 3)[0]) == 2
    assert len(translator.translate_n_best([""], 3)[0]) == 1


@pytest.mark.parametrize("n", [0, 10_001])
def test_a_number_of_translations_is_bounded(translator: Translator, n: int) -> None:
    for translate in (translator.translate_n_best, translator.sample):
        with pytest.raises(UserError, match=f"n is {n}: ask for at least 1 and at most 10,000 translations"):
            translate(SENTENCES[:1], n)


def test_a_perplexity_beyond_a_float_is_infinite(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    for log_prob, expected in ((-2000.0, math.inf), (0.0, 1.0)):

        def log_probs(batch: Batch, log_prob: float = log_prob) -> torch.Tensor:
            return torch.full(batch.target_out.shape, log_prob)

        monkeypatch.setattr(translator.model, "log_probs", log_probs)
        assert translator.perplexity(["The cat."], ["Le chat."]) == expected


def with_beam(translator: Translator, size: int) -> Translator:
    assert translator.checkpoint is not None
    return Translator.load(translator.checkpoint, device="cpu", beam_size=size)


def texts(translator: Translator, sentences: Sequence[str]) -> list[str]:
    return [each.text for each in translator.translate(sentences)]


def test_a_sample_depends_on_seed_and_sentence_alone(tiny_run: Path) -> None:
    """Not on batches and order, and not on how many samples are drawn."""
    settings = {"seed": 7, "temperature": 1.5, "top_k": 50}
    found, *others = (
        Translator.load(tiny_run, device="cpu", batch_unit=unit, batch_size=size).sample(lines, n, **settings)
        for unit, size, lines, n in (
            ("sentences", 1, SENTENCES, 3),
            ("sentences", 64, ["", *SENTENCES[::-1], *SENTENCES], 2),
            ("tokens", 50, SENTENCES * 2, 1),
        )
    )
    drawn = {samples[0].source: samples for samples in found}
    assert all(len(samples) == 3 for samples in found)
    assert sum(len({each.text for each in samples}) for samples in found) > 2 * len(SENTENCES)
    for samples in itertools.chain(*others):
        for each, same in zip(samples, drawn.get(samples[0].source, samples), strict=False):
            assert each.text == same.text
            assert each.log_prob == pytest.approx(same.log_prob, abs=1e-4)
            assert each.weights.shape == (len(each.target_words), len(each.source_words))


def test_a_sample_has_the_log_probability_of_forced_decoding(translator: Translator) -> None:
    """That of the model, whatever the temperature; it is the score times the length."""
    source, target = translator.tokenizers.source, translator.tokenizers.target
    for each, *_ in translator.sample(SENTENCES, temperature=0.7, seed=3):
        tokens = np.array(target.ids_of(each.pieces))
        (ids,) = source.encode([each.source])
        batch = collate([np.array(ids)], [tokens], np.arange(1))
        with torch.inference_mode():
            log_probs = translator.model.log_probs(batch)[0]
        cut = len(tokens) == int((len(ids) + 1) * 2.0 + 5)
        assert each.log_prob == pytest.approx(float(log_probs[: -1 if cut else None].sum()), rel=1e-4)
        assert each.score == pytest.approx(each.log_prob / (len(tokens) + (not cut)), rel=1e-4)


def test_samples_of_no_temperature_are_greedy(translator: Translator, tiny_run: Path) -> None:
    greedy = with_beam(translator, 1).translate([*SENTENCES, ""])
    for load in ({}, {"precision": "int8"}, {"ensemble": [tiny_run]}):
        found = Translator.load(tiny_run, "cpu", **load, beam_size=1)
        same = greedy if load.get("precision") is None else found.translate([*SENTENCES, ""])
        assert [each.text for each in same] == [each.text for each, *_ in found.sample([*SENTENCES, ""], temperature=0)]


def test_greedy_takes_the_most_probable_tokens_however_patient_the_search_is(translator: Translator) -> None:
    patient = copy.copy(translator)
    patient.search = replace(translator.search, patience=math.inf, length_penalty=3.0)
    samples = translator.sample(SENTENCES, temperature=0)
    assert [each.text for each in patient.greedy(SENTENCES)] == [each.text for each, *_ in samples]


@pytest.mark.parametrize("settings", [{}, {"coverage_penalty": 0.4}, {"patience": math.inf, "length_penalty": 3.0}])
def test_greedy_search_is_a_beam_of_one(
    settings: dict[str, Any], translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where that takes the most probable tokens alone, a loop without a beam finds the same."""
    with_settings = copy.copy(translator)
    with_settings.search = replace(translator.search, beam_size=1, **settings)
    searched = []
    for is_greedy in (search_module.is_greedy, lambda config: False):
        monkeypatch.setattr(search_module, "is_greedy", is_greedy)
        searched.append(with_settings.translate([*SENTENCES, ""]))
    for each, expected in zip(*searched, strict=True):
        assert (each.text, each.pieces, each.cut) == (expected.text, expected.pieces, expected.cut)
        assert (each.score, each.log_prob) == pytest.approx((expected.score, expected.log_prob), rel=1e-5)
        np.testing.assert_allclose(each.weights, expected.weights, atol=1e-6)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda translator: pickle.loads(pickle.dumps(translator))])
def test_a_translator_can_be_copied_and_sent(
    copied: Callable[[Translator], Translator], precision: str, tiny_run: Path
) -> None:
    """To a process that is spawned, for instance."""
    translator = Translator.load(tiny_run, "cpu", precision)
    assert texts(copied(translator), SENTENCES) == texts(translator, SENTENCES)


@pytest.mark.parametrize("is_fast", [True, False])
def test_the_default_device_of_torch_does_not_matter(is_fast: bool, tiny_run: Path) -> None:
    translator = Translator.load(tiny_run, "cpu")
    if not is_fast:
        decelerate(translator.model)
    pairs = (SENTENCES, ["Il dort."] * len(SENTENCES))
    before = texts(translator, SENTENCES), translator.align(*pairs), Explainer(translator).pairs(*pairs)
    with torch.device("meta"):
        assert texts(translator, SENTENCES) == before[0]
        assert translator.align(*pairs) == before[1]
        assert Explainer(translator).pairs(*pairs) == before[2]


def test_the_model_that_is_given_stays_as_it_is(translator: Translator) -> None:
    given = translator.model
    before = texts(translator, SENTENCES)
    quantized = Translator(given, translator.tokenizers, translator.search, translator.device, "int8")
    assert isinstance(given.output, torch.nn.Linear)
    assert not isinstance(quantized.model.output, torch.nn.Linear)
    assert texts(translator, SENTENCES) == before


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("others", [0, 1])
def test_what_translates_is_accelerated(tiny_run: Path, precision: str, others: int) -> None:
    """Also where it is a copy of what was loaded."""
    translator = Translator.load(tiny_run, "cpu", precision, ensemble=[tiny_run] * others)
    models = [module for module in translator.model.modules() if isinstance(module, Seq2Seq)]
    assert len(models) == 1 + others
    assert all("recur" in replaced_methods(model.encoder) for model in models)


def test_settings_of_sampling_are_checked(translator: Translator) -> None:
    for settings, message in (({"top_p": 0.0}, "top_p=0.0 is out of range"), ({"seed": -1}, "seed=-1 is out of range")):
        with pytest.raises(UserError, match=message):
            translator.sample(SENTENCES, **settings)


def test_the_score_is_the_log_probability_by_length(translator: Translator) -> None:
    alpha = translator.search.length_penalty
    assert alpha != 0
    for each in translator.translate(SENTENCES):
        assert each.score == pytest.approx(each.log_prob / (len(each.pieces) + 1) ** alpha, rel=1e-4)


def test_weights_are_between_the_words_of_both_sides(translator: Translator) -> None:
    for each in translator.translate(SENTENCES):
        assert each.source_words == text_words(each.source)
        assert "".join(each.target_words).replace(" ", "") == each.text.replace(" ", "")
        assert each.weights.shape == (len(each.target_words), len(each.source_words))
        np.testing.assert_allclose(each.weights.sum(axis=1), 1.0, atol=1e-6)


def test_forced_attention_is_that_of_the_translation(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forced onto what the model said itself, piece by piece."""
    found = translator.translate(SENTENCES)
    tokenizer = translator.tokenizers.target
    encode = tokenizer.encode
    said = [tokenizer.ids_of(each.pieces) for each in found]
    texts = [each.text for each in found]
    # The text alone might be cut into other pieces than the model said.
    monkeypatch.setattr(tokenizer, "encode", lambda lines: said if lines == texts else encode(lines))
    for each, aligned in zip(found, translator.align(SENTENCES, texts, words="split"), strict=True):
        assert aligned.source_words == each.source_words
        assert aligned.target_words == each.target_words
        np.testing.assert_allclose(aligned.weights, each.weights, atol=1e-5)


def test_alignment_of_given_translations(translator: Translator) -> None:
    sources, targets = ["He sleeps.", "", "She helps her brother."], ["Il dort.", "rien", ""]
    first, second, third = translator.align(sources, targets)
    assert (first.source_words, first.target_words) == (["He", "sleeps."], ["Il", "dort."])
    np.testing.assert_allclose(first.weights.sum(axis=1), 1.0)
    assert second.weights.size == third.weights.size == 0


def test_no_attention_means_no_links() -> None:
    """A model without attention gives no weights to words, and links none."""
    tokenizers = build_tokenizers(SENTENCES, SENTENCES, TokenizerConfig(vocab_size=330))
    config = ModelConfig(decoder="fixed_context", embedding_size=8, hidden_size=16)
    model = build_model(config, len(tokenizers.source), len(tokenizers.target), joint=True)
    translator = Translator(model, tokenizers, SearchConfig(beam_size=2, max_length_offset=3), torch.device("cpu"))
    for each in [*translator.translate(SENTENCES), *translator.align(SENTENCES, SENTENCES[::-1])]:
        assert each.weights.shape == (len(each.target_words), len(each.source_words))
        assert not each.weights.any()
        assert argmax_links(each.weights) == set()
    assert attention_entropy([each.weights for each in translator.translate(SENTENCES)]) is None


@pytest.fixture(scope="module")
def normalizing() -> Translator:
    """Its subwords are of normalized text, in which an accent stands apart from its letter and ligatures are none."""
    lines = [*SENTENCES, "l´homme dort ici .", "ﬁne"]
    tokenizers = build_tokenizers(lines, lines, TokenizerConfig(vocab_size=340))
    model = build_model(ModelConfig(embedding_size=8, hidden_size=16), *[len(tokenizers.source)] * 2, joint=True)
    return Translator(model, tokenizers, SearchConfig(beam_size=1, max_length_offset=3), torch.device("cpu"))


def test_source_words_are_those_of_the_input(normalizing: Translator) -> None:
    line = "l´homme dort ici ."
    assert len(normalizing.tokenizers.source.words(normalizing.tokenizers.source.encode([line])[0])[0]) == 5
    (found,) = normalizing.translate([line])
    assert found.source_words == line.split()
    assert found.weights.shape == (len(found.target_words), 4)
    (aligned,) = normalizing.align([line], ["ﬁne l´homme"])
    assert (aligned.source_words, aligned.target_words) == (line.split(), ["ﬁne", "l´homme"])
    assert aligned.weights.shape == (2, 4)


def test_in_segmented_text_given_pairs_are_aligned_piece_by_piece() -> None:
    sources, targets = ["ol@@ d river"], ["vieille riv@@ ière"]
    tokenizers = build_tokenizers(sources, targets, TokenizerConfig(kind="whitespace"))
    model = build_model(ModelConfig(embedding_size=8, hidden_size=16), *[len(tokenizers.source)] * 2, joint=True)
    translator = Translator(model, tokenizers, SearchConfig(beam_size=1, max_length_offset=3), torch.device("cpu"))
    (aligned,) = translator.align(sources, targets)
    assert (aligned.source_words, aligned.target_words) == (["ol@@", "d", "river"], ["vieille", "riv@@", "ière"])
    assert aligned.weights.shape == (3, 3)
    assert translator.translate(sources)[0].source_words == ["old", "river"]  # as its translation is joined


@pytest.mark.parametrize("decoder", ["luong", "fixed_context"])
def test_unknown_words_are_those_attended_to(decoder: str) -> None:
    """A model that knows three words, and finds most of what it says unknown; without attention it copies nothing."""
    lines = ["ol@@ d river", "old Nile", "a river Nile", "Thames Rhine Nile"]
    tokenizers = build_tokenizers(lines[:1], lines[:1], TokenizerConfig(kind="whitespace"))
    torch.manual_seed(3)
    config, size = ModelConfig(decoder=decoder, embedding_size=8, hidden_size=16), len(tokenizers.source)
    model = build_model(config, size, size, joint=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4.0)  # so that attention moves from word to word
        model.output.bias[UNK] += 6.0
    search = SearchConfig(beam_size=3, max_length_ratio=1, max_length_offset=4)
    plain, copying = (
        Translator(model, tokenizers, replace(search, replace_unknown=copies), torch.device("cpu"))
        for copies in (False, True)
    )
    places = set()
    for each, other in zip(copying.translate(lines), plain.translate(lines), strict=True):
        assert "<unk>" not in other.pieces
        words, _ = tokenizers.target.words(tokenizers.target.encode([" ".join(each.pieces)])[0])
        for word, shown, row in zip(words, each.target_words, each.weights, strict=True):
            unknown = word == "<unk>" and bool(row.any())
            assert shown == (each.source.replace("@@ ", "").split()[row.argmax()] if unknown else word)
            places |= {row.argmax()} if unknown else set()
        assert each.text == " ".join(each.target_words)
    for drawn in copying.sample(lines, 2):
        for each in drawn:
            assert len(each.target_words) == len(each.weights)
            assert "<unk>" not in each.target_words or decoder == "fixed_context"
    assert len(places) > 1 if decoder == "luong" else not places


@pytest.mark.parametrize("copies", [False, True])
def test_text_alone_is_the_same_text(tiny_run: Path, copies: bool) -> None:
    whole, plain = (Translator.load(tiny_run, device="cpu", beam_size=2, replace_unknown=copies) for _ in range(2))
    plain.with_alignment = False
    for one, other in zip(whole.translate(SENTENCES), plain.translate(SENTENCES), strict=True):
        assert (other.text, other.score, other.pieces, other.cut) == (one.text, one.score, one.pieces, one.cut)
        assert copies or (other.source_words, other.target_words, other.weights.size) == ([], [], 0)


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"beam_size": 0}, "beam_size=0 is out of range: it must be at least 1"),
        ({"length_penalty": -1.0}, "length_penalty=-1.0 is out of range"),
    ],
)
def test_search_settings_are_checked(tiny_run: Path, search: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Translator.load(tiny_run, device="cpu", **search)


def test_settings_that_are_none_are_those_of_the_run(tiny_run: Path) -> None:
    translator = Translator.load(tiny_run, device="cpu", beam_size=None, batch_size=7)
    assert (translator.search.beam_size, translator.search.batch_size, translator.step) == (2, 7, 100)


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_other_precisions_find_nearly_the_same(translator: Translator, tiny_run: Path, precision: str) -> None:
    """Scores of the same targets: searches may part where two words are nearly as likely."""
    other = Translator.load(tiny_run, device="cpu", precision=precision)
    for one, two in zip(translator.translate(SENTENCES), other.translate(SENTENCES), strict=True):
        assert one.score != two.score
        assert one.score == pytest.approx(two.score, abs=0.1)
        if one.text == two.text:
            np.testing.assert_allclose(one.weights, two.weights, atol=0.1)
    targets = ["Il dort."] * len(SENTENCES)
    for left, right in zip(translator.align(SENTENCES, targets), other.align(SENTENCES, targets), strict=True):
        np.testing.assert_allclose(left.weights, right.weights, atol=0.1)


def test_a_precision_that_does_not_exist(tiny_run: Path) -> None:
    with pytest.raises(UserError, match="unknown precision 'int4'"):
        Translator.load(tiny_run, device="cpu", precision="int4")
