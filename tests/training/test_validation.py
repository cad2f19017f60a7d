"""Validation against one sentence at a time."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import datasets
import numpy as np
import pytest
import torch

from nmt.alignment.aer import alignment_error_rate
from nmt.alignment.links import argmax_links
from nmt.alignment.pharaoh import parse_pharaoh
from nmt.alignment.weights import attention_entropy, coverage_deficit
from nmt.config.schema import BatchConfig, ModelConfig, SearchConfig, TokenizerConfig, TrainConfig, TrainerConfig
from nmt.data.batch import collate
from nmt.errors import UserError
from nmt.evaluation.metrics import bleu, chrf, corpus_score, repetition_rate
from nmt.evaluation.outcome import Outcome
from nmt.evaluation.registry import measure, names_at
from nmt.models.build import build_model
from nmt.models.seq2seq import Seq2Seq
from nmt.text.tokenizer import Tokenizers, build_tokenizers
from nmt.training.validation import Validator
from nmt.translation import empty_translation
from nmt.translator import Translator

SOURCES = [f"the cat sees {'the big ' * (i % 5)}dog number {i} and sleeps" for i in range(12)]
TARGETS = [f"le chat voit le {'grand ' * (i % 5)}chien" for i in range(12)]
GOLD = ["0-0 1-1 2-2"] * 12
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    return build_tokenizers(SOURCES, TARGETS, TokenizerConfig(vocab_size=330, joint=False))


@pytest.fixture(scope="module")
def model(tokenizers: Tokenizers) -> Seq2Seq:
    torch.manual_seed(1)
    config = ModelConfig(embedding_size=8, hidden_size=16, dropout=0.5)
    found = build_model(config, len(tokenizers.source), len(tokenizers.target), joint=False)
    for parameter in found.parameters():  # or its distributions are all but uniform
        torch.nn.init.normal_(parameter, std=0.4)
    return found


def corpus(*, gold: bool = True) -> datasets.Dataset:
    columns = {"source": SOURCES, "target": TARGETS, **({"alignment": GOLD} if gold else {})}
    return datasets.Dataset.from_dict(columns)


def quick_scores(hypotheses: list[str], references: list[str], *scoring: Any) -> dict[str, float]:
    metrics = {"bleu": bleu(*scoring), "chrf": chrf(*scoring)}
    return {name: corpus_score(metric, hypotheses, references).value for name, metric in metrics.items()}


def validator(tokenizers: Tokenizers, *, gold: bool = True, beam: int = 1, **trainer: Any) -> Validator:
    config = TrainConfig(
        trainer=TrainerConfig(validation_beam_size=beam, **trainer),
        search=SearchConfig(max_length_ratio=0.2, max_length_offset=4, beam_size=5),
        batch=BatchConfig(size=60),
    )
    return Validator(corpus(gold=gold), tokenizers, config, CPU)


def test_the_loss_is_that_of_the_sentences_one_by_one(model: Seq2Seq, tokenizers: Tokenizers) -> None:
    metrics = validator(tokenizers)(model.train()).metrics
    assert not model.training
    sides = zip(tokenizers.source.encode(SOURCES), tokenizers.target.encode(TARGETS), strict=True)
    total, count = 0.0, 0
    with torch.no_grad():
        for source, target in sides:
            batch = collate([np.array(source, np.int32)], [np.array(target, np.int32)], np.zeros(1, np.int64))
            log_probs = model.project(model(batch).features)[0].log_softmax(dim=1)
            total -= sum(float(log_probs[i, token]) for i, token in enumerate(batch.target_out[0]))
            count += len(target) + 1
    assert metrics["loss"] == pytest.approx(total / count, rel=1e-5)
    assert metrics["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-4)


@pytest.mark.parametrize("beam", [1, 3])
def test_the_quality_is_that_of_the_translations(model: Seq2Seq, tokenizers: Tokenizers, beam: int) -> None:
    found = validator(tokenizers, beam=beam)(model).metrics
    search = SearchConfig(beam_size=beam, max_length_ratio=0.2, max_length_offset=4)
    translator = Translator(model, tokenizers, search, CPU)
    expected = quick_scores([each.text for each in translator.translate(SOURCES)], TARGETS)
    assert {name: found[name] for name in expected} == expected
    assert set(expected) == {"bleu", "chrf"}


def test_the_scores_are_those_of_the_configuration(model: Seq2Seq, tokenizers: Tokenizers) -> None:
    config = TrainConfig(
        search=SearchConfig(max_length_ratio=0.2, max_length_offset=4), bleu_tokenize="char", lowercase=True
    )
    columns = {"source": SOURCES, "target": [line.upper() for line in TARGETS]}
    found = Validator(datasets.Dataset.from_dict(columns), tokenizers, config, CPU)(model).metrics
    search = SearchConfig(beam_size=1, max_length_ratio=0.2, max_length_offset=4)
    texts = [each.text for each in Translator(model, tokenizers, search, CPU).translate(SOURCES)]
    expected = quick_scores(texts, columns["target"], "char", True)
    assert {name: found[name] for name in expected} == expected
    assert expected != quick_scores(texts, columns["target"])
    assert expected != quick_scores(texts, columns["target"], "char")


def test_alignments_are_scored_where_there_is_gold(model: Seq2Seq, tokenizers: Tokenizers) -> None:
    metrics = validator(tokenizers)(model).metrics
    aligned = Translator(model, tokenizers, SearchConfig(), CPU).align(SOURCES, TARGETS)
    gold = [parse_pharaoh(line) for line in GOLD]
    assert metrics["aer"] == alignment_error_rate([argmax_links(each.weights) for each in aligned], gold).aer
    assert "aer" not in validator(tokenizers, gold=False)(model).metrics


def test_an_error_rate_that_cannot_be_measured_is_told_before_training(
    crossing: Callable[[Sequence[str]], Tokenizers],
) -> None:
    tokenizers = crossing(SOURCES)
    assert len(validator(tokenizers).sample_rows) == 4
    with pytest.raises(UserError, match=r"trainer\.metric=aer cannot be measured in any of 12 validation pairs"):
        validator(tokenizers, metric="aer")


def test_attention_is_measured_without_gold_too(model: Seq2Seq, tokenizers: Tokenizers) -> None:
    metrics = validator(tokenizers, gold=False)(model).metrics
    search = SearchConfig(beam_size=1, max_length_ratio=0.2, max_length_offset=4)
    translations = Translator(model, tokenizers, search, CPU).translate(SOURCES)
    weights = [each.weights for each in translations]
    assert metrics["attention_entropy"] == attention_entropy(weights)
    assert metrics["coverage_deficit"] == coverage_deficit(weights)
    assert metrics["repetition_rate"] == repetition_rate([each.text for each in translations])


def test_a_model_that_says_nothing_has_no_attention_to_measure() -> None:
    names = ("attention_entropy", "coverage_deficit", "repetition_rate")
    assert set(names) <= set(names_at("validation"))
    values, _ = measure(Outcome(translations=[empty_translation("")], references=["a"]), names)
    assert set(values.values()) == {None}


def test_what_is_not_available_is_left_out_but_for_what_is_watched(model: Seq2Seq, tokenizers: Tokenizers) -> None:
    assert validator(tokenizers, gold=False)(model).metrics.keys() == validator(tokenizers)(model).metrics.keys() - {
        "aer"
    }
    assert math.isnan(validator(tokenizers, gold=False, metric="aer")(model).metrics["aer"])


def test_the_samples_are_the_same_every_time(model: Seq2Seq, tokenizers: Tokenizers) -> None:
    first, second = (validator(tokenizers, num_samples=3)(model).samples for _ in range(2))
    assert [each.translation.source for each in first] == [each.translation.source for each in second]
    assert len({each.translation.source for each in first}) == 3
    for each in first:
        found = each.translation
        assert each.reference == TARGETS[SOURCES.index(found.source)]
        assert found.weights.shape == (len(found.target_words), len(found.source_words))
    assert validator(tokenizers, num_samples=0)(model).samples == []
    assert len(validator(tokenizers, num_samples=100)(model).samples) == 12


def test_no_gradient_is_left(model: Seq2Seq, tokenizers: Tokenizers) -> None:
    validator(tokenizers)(model)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_samples_are_those_of_a_validation(model: Seq2Seq, tokenizers: Tokenizers) -> None:
    validate = validator(tokenizers, num_samples=3)
    validated, alone = validate(model).samples, validate.samples(model.train())
    assert not model.training
    assert len(alone) == 3
    for one, other in zip(validated, alone, strict=True):
        assert (one.reference, one.translation.text) == (other.reference, other.translation.text)
        assert one.reference in TARGETS
        assert one.forced is not None
        assert other.forced is not None
        assert one.forced.target_words == one.reference.split()
        np.testing.assert_allclose(one.forced.weights, other.forced.weights, atol=1e-6)


@pytest.mark.parametrize(("gold", "passes"), [(True, 3), (False, 2)])
def test_a_validation_tells_how_far_it_is(
    model: Seq2Seq, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch, gold: bool, passes: int
) -> None:
    seen: list[Any] = []

    @contextlib.contextmanager
    def phase(name: str, total: int) -> Iterator[Callable[[int], None]]:
        seen.append((name, total))
        yield seen.append

    validate = validator(tokenizers, gold=gold)
    monkeypatch.setattr(validate, "phase", phase)
    validate(model)
    (name, total), *counts = seen
    assert (name, total) == ("validating", passes * len(SOURCES))
    assert sum(counts) == total


def test_a_line_that_is_far_too_long_is_cut_as_in_an_evaluation(model: Seq2Seq, tokenizers: Tokenizers) -> None:
    lines = [". ".join(SOURCES), *SOURCES]
    config = TrainConfig(search=SearchConfig(max_length_ratio=0.2, max_length_offset=4))
    columns = {"source": lines, "target": [". ".join(TARGETS), *TARGETS]}
    validate = Validator(datasets.Dataset.from_dict(columns), tokenizers, config, CPU, longest=12)
    translator = validate._translator(model)
    assert translator.longest_source == 12
    assert [each.parts > 1 for each in translator.translate(lines[:2])] == [True, True]


@pytest.mark.parametrize("metric", ["loss", "bleu"])
@pytest.mark.parametrize(
    ("name", "value", "changes_scores"),
    [
        ("search.beam_size", 9, ()),
        ("search.batch_size", 9, ()),
        ("search.batch_unit", "sentences", ()),
        ("data.cache_dir", "elsewhere", ()),
        ("search.length_penalty", 0.5, ("bleu",)),
        ("trainer.validation_beam_size", 3, ("bleu",)),
        ("bleu_tokenize", "char", ("bleu",)),
        ("lowercase", True, ("bleu",)),
        ("trainer.metric", "perplexity", ("loss", "bleu")),
    ],
)
def test_the_digest_is_of_all_that_the_metric_depends_on(
    tokenizers: Tokenizers, metric: str, name: str, value: object, changes_scores: tuple[str, ...]
) -> None:
    config = TrainConfig()
    config.trainer.metric = metric
    before = Validator(corpus(), tokenizers, config, CPU).digest
    assert Validator(corpus(), tokenizers, config, CPU).digest == before
    assert Validator(corpus().select(range(1)), tokenizers, config, CPU).digest != before
    group, _, last = name.rpartition(".")
    setattr(getattr(config, group) if group else config, last, value)
    assert (Validator(corpus(), tokenizers, config, CPU).digest != before) == (metric in changes_scores)
