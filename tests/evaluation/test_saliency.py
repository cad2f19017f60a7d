"""Saliency against finite differences, sentence by sentence."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nmt.alignment.weights import Alignment
from nmt.config.schema import AttentionConfig, ModelConfig, SearchConfig, TokenizerConfig
from nmt.data.batch import Batch, collate
from nmt.errors import UserError
from nmt.evaluation import saliency
from nmt.evaluation.evaluator import evaluate_split
from nmt.evaluation.saliency import Explainer, gradient_times_input, word_saliency
from nmt.evaluation.views import AlignmentViews
from nmt.fast.accelerate import accelerate
from nmt.models.build import build_model
from nmt.models.seq2seq import Seq2Seq
from nmt.text.tokenizer import UNK, build_tokenizers
from nmt.translator import Translator
from tests.evaluation.reported import alignments_in

VOCAB = 11
LENGTHS = [(5, 3), (1, 4), (3, 1), (2, 0)]
VARIANTS: list[dict[str, Any]] = [
    {"decoder": "bahdanau", "cell": "gru"},
    {"decoder": "luong", "cell": "lstm", "tied_embeddings": "all", "attention": AttentionConfig(score="general")},
    {"decoder": "conditional", "cell": "gru", "num_layers": 2},
]
SOURCES = ["the cat sees the dog", "", "a dog", "the big big dog sees a cat and sleeps"]
TARGETS = ["le chat voit le chien", "rien", "", "le grand chien voit un chat et dort"]


def small_model(**settings: Any) -> Seq2Seq:
    torch.manual_seed(5)
    config = ModelConfig(**{"embedding_size": 6, "hidden_size": 8, "dropout": 0.5, **settings})
    model = build_model(config, VOCAB, VOCAB, joint=True).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def random_batch(lengths: list[tuple[int, int]] = LENGTHS) -> Batch:
    generator = np.random.default_rng(0)
    sides = [[generator.integers(4, VOCAB, pair[side]) for pair in lengths] for side in (0, 1)]
    return collate(sides[0], sides[1], np.arange(len(lengths)))


def log_probs(model: Seq2Seq, batch: Batch, change: Callable[[Tensor], Tensor]) -> Tensor:
    """log p of every target token, all steps at once, with the embedded source changed."""

    def hook(module: torch.nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return change(output)

    handle = model.encoder.embedding.register_forward_hook(hook)
    state = model.start(batch.source, batch.source_mask, batch.source_lengths)
    handle.remove()
    decoded = model.decoder(batch.target_in, state.memory, state.decoder)
    return model.project(decoded.features).log_softmax(dim=-1).gather(2, batch.target_out[..., None])[..., 0]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant["decoder"])
def test_it_is_the_derivative_by_the_size_of_each_embedding(variant: dict[str, Any]) -> None:
    """d log p / dt where e_j becomes (1 + t) e_j, by central differences."""
    model, batch, step = small_model(**variant).eval(), random_batch(), 1e-5
    found = gradient_times_input(model, batch)
    with torch.no_grad():
        for j in range(batch.source.shape[1]):
            sizes = torch.ones(batch.source.shape[1], 1, dtype=torch.float64)
            up, down = sizes.clone(), sizes.clone()
            up[j] += step
            down[j] -= step
            difference = log_probs(model, batch, up.mul) - log_probs(model, batch, down.mul)
            expected = (difference / (2 * step)).where(batch.target_mask, 0.0)
            torch.testing.assert_close(found[:, :, j], expected, atol=1e-8, rtol=1e-6)
    assert float(found.abs().max()) > 0.01


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant["decoder"])
def test_neither_padding_nor_the_rest_of_the_batch_matters(variant: dict[str, Any]) -> None:
    model, batch = small_model(**variant), random_batch()
    together = gradient_times_input(model, batch)
    for row in range(len(batch)):
        source, target = batch.source[row][batch.source_mask[row]], batch.target_out[row][batch.target_mask[row]]
        alone = gradient_times_input(model, collate([source[:-1].numpy()], [target[:-1].numpy()], np.arange(1)))
        torch.testing.assert_close(together[row, : len(target), : len(source)], alone[0])
        assert not together[row, len(target) :].any()
        assert not together[row, :, len(source) :].any()


def test_the_model_is_left_alone() -> None:
    model, batch = accelerate(small_model(tied_embeddings="all")).train(), random_batch()
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    with torch.no_grad():
        first, second = (gradient_times_input(model, batch) for _ in range(2))
    torch.testing.assert_close(first, second, atol=0, rtol=0)  # no dropout
    assert not first.requires_grad
    assert not model.encoder.embedding._forward_hooks
    assert "recur" in vars(model.encoder)
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad
        assert parameter.grad is None
        torch.testing.assert_close(parameter, before[name], atol=0, rtol=0)


def test_words_of_a_worked_example() -> None:
    pieces = np.array(
        [
            [0.3, -0.1, 0.2, 9.0],  # "un-"
            [0.1, -0.3, -0.6, 9.0],  # "-der"
            [0.0, 0.5, -0.5, 9.0],  # its pieces cancel out, and the other source word says nothing
            [1.0, 1.0, 1.0, 9.0],  # eos
        ]
    )
    found = word_saliency(pieces, target_word=[0, 0, 1], source_word=[0, 1, 1])
    np.testing.assert_allclose(found, [[0.4 / 1.2, 0.8 / 1.2], [0.0, 0.0]], atol=1e-12)


def words_of(sizes: list[int]) -> list[int]:
    return [word for word, size in enumerate(sizes) for _ in range(size)]


@given(st.lists(st.integers(1, 3), max_size=4), st.lists(st.integers(1, 3), max_size=4), st.integers(0, 100))
def test_words_against_sums_in_python(target: list[int], source: list[int], seed: int) -> None:
    rows, columns = words_of(target), words_of(source)
    pieces = np.random.default_rng(seed).normal(size=(len(rows) + 1, len(columns) + 1))
    found = word_saliency(pieces, rows, columns)
    assert found.shape == (len(target), len(source))
    for j, i in np.ndindex(found.shape):
        sums = [
            abs(sum(pieces[a, b] for a, t in enumerate(rows) if t == j for b, s in enumerate(columns) if s == k))
            for k in range(len(source))
        ]
        assert found[j, i] == pytest.approx(sums[i] / sum(sums))


@pytest.fixture(scope="module")
def translator() -> Translator:
    return translator_of(SOURCES, TARGETS)


def translator_of(sources: list[str], targets: list[str]) -> Translator:
    tokenizers = build_tokenizers(sources, targets, TokenizerConfig(vocab_size=330, joint=False))
    torch.manual_seed(1)
    config = ModelConfig(embedding_size=8, hidden_size=16)
    model = build_model(config, len(tokenizers.source), len(tokenizers.target), joint=False)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    search = SearchConfig(beam_size=1, max_length_ratio=0.1, max_length_offset=6)
    return Translator(model, tokenizers, search, torch.device("cpu"))


def test_pairs_have_the_words_of_the_attention(translator: Translator) -> None:
    found, attention = Explainer(translator).pairs(SOURCES, TARGETS), translator.align(SOURCES, TARGETS)
    for saliency_of, attention_of in zip(found, attention, strict=True):
        assert saliency_of.source_words == attention_of.source_words
        assert saliency_of.target_words == attention_of.target_words
        assert saliency_of.weights.shape == attention_of.weights.shape
        np.testing.assert_allclose(saliency_of.weights.sum(axis=1), 1.0)
    assert not np.allclose(found[0].weights, attention[0].weights, atol=0.05)


def test_pairs_do_not_depend_on_their_batch(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    together = Explainer(translator).pairs(SOURCES, TARGETS)
    monkeypatch.setattr(saliency, "TOKENS", 1)
    for one, other in zip(Explainer(translator).pairs(SOURCES, TARGETS), together, strict=True):
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)
    assert Explainer(translator).pairs([], []) == []
    with pytest.raises(UserError, match="1 sources and 2 targets are no pairs"):
        Explainer(translator).pairs(["a"], ["b", "c"])


def test_the_inference_mode_of_the_caller_does_not_matter(tiny_run: Path) -> None:
    """Neither while loading nor while explaining."""
    translator = Translator.load(tiny_run, device="cpu")
    translations = translator.translate(["He sleeps.", "My sister sees Luc."])
    expected = Explainer(translator).translations(translations)
    with torch.inference_mode():
        inside = Explainer(translator).translations(translations)
        loaded = Translator.load(tiny_run, device="cpu")
    for found in (inside, Explainer(loaded).translations(translations)):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one.weights, other.weights)


def test_translations_are_explained_by_the_pieces_they_were_made_of(translator: Translator) -> None:
    translations = translator.translate(SOURCES)
    found = Explainer(translator).translations(translations)
    assert [each.target_words for each in found] == [each.target_words for each in translations]
    tokenizer = translator.tokenizers.target

    def explained(pieces: list[str]) -> Alignment:
        words = translator.words_of(tokenizer, tokenizer.ids_of(pieces))
        (found,) = Explainer(translator).translations([replace(translations[0], pieces=pieces, words=words)])
        assert found is not None
        return found

    said = explained(tokenizer.pieces(tokenizer.encode(["chat"])[0]))
    (given,) = Explainer(translator).pairs(SOURCES[:1], ["chat"])
    np.testing.assert_allclose(said.weights, given.weights)
    spelt = [piece for letter in ("\u2581", *"chat") for piece in [letter] if piece in vocabulary(translator)]
    apart = explained(spelt)
    assert apart.target_words == given.target_words
    assert not np.allclose(apart.weights, given.weights, atol=1e-3)


def test_a_translation_in_parts_has_none(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its words are those of the parts, which may be others than those of the whole: "10 ." and "10."."""
    sentence = "a dog sees the cat. "
    monkeypatch.setattr(translator, "longest_source", len(translator.tokenizers.source.encode([sentence])[0]))
    translations = translator.translate([SOURCES[2], 3 * sentence, SOURCES[2]])
    assert [each.parts for each in translations] == [1, 3, 1]
    found = Explainer(translator).translations(translations)
    assert found[1] is None
    for each, translation in ((found[0], translations[0]), (found[2], translations[2])):
        assert each is not None
        assert each.weights.shape == translation.weights.shape
        assert each.weights.sum() > 0
    views = AlignmentViews(explainer=Explainer(translator))
    rows = {"source": [each.source for each in translations], "target": ["un chat ."] * 3}
    evaluate_split(translator, datasets.Dataset.from_dict(rows), tmp_path / "test", split="test", views=views)
    page = (tmp_path / "test" / "report.html").read_text(encoding="utf-8")
    drawn = ["saliency" in each["matrices"] for each in alignments_in(page).values()]
    assert sorted(drawn) == [False, True, True]  # not a picture of zeros


def test_translations_of_characters_have_the_characters_of_the_attention() -> None:
    lines = ["猫看见狗", "大狗睡觉", "猫睡觉", "大猫看见大狗"] * 5  # pieces of several characters
    translator = translator_of(lines, lines)
    translations = translator.translate(lines[:4])
    sizes = [len(ids) for ids in translator.tokenizers.source.encode(lines[:4])]
    assert any(size < len(each.source_words) for size, each in zip(sizes, translations, strict=True))
    for found, translation in zip(Explainer(translator).translations(translations), translations, strict=True):
        assert (found.source_words, found.target_words) == (translation.source_words, translation.target_words)
        assert found.weights.shape == translation.weights.shape


def test_copies_of_unknown_words_are_cut_into_characters_as_in_the_translation() -> None:
    lines = ["老师 看见 狗", "孩子 看见 自行车"]
    tokenizers = build_tokenizers(lines, ["a dog"], TokenizerConfig(kind="whitespace", joint=False))
    torch.manual_seed(1)
    shape = ModelConfig(embedding_size=8, hidden_size=16)
    model = build_model(shape, *map(len, (tokenizers.source, tokenizers.target)), joint=False)
    with torch.no_grad():
        model.output.bias[UNK] += 5.0
    search = SearchConfig(beam_size=1, max_length_ratio=0.1, max_length_offset=4, replace_unknown=True)
    translator = Translator(model, tokenizers, search, torch.device("cpu"))
    translations = translator.translate(lines)
    assert all(len(each.target_words) > len(each.pieces) for each in translations)
    for found, translation in zip(Explainer(translator).translations(translations), translations, strict=True):
        assert (found.source_words, found.target_words) == (translation.source_words, translation.target_words)
        assert found.weights.shape == translation.weights.shape


def vocabulary(translator: Translator) -> set[str]:
    tokenizer = translator.tokenizers.target
    return set(tokenizer.pieces(range(len(tokenizer))))
