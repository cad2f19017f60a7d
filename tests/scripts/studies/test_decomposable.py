"""Decomposable attention against its formulas, in loops; padding, empty sentences, word order."""

import itertools
import math

import pytest
import torch
from torch import nn

from nmt.attention.attention import Attention
from nmt.attention.build import build_attention
from nmt.attention.normalizers import NORMALIZERS
from nmt.attention.scores import SCORES
from nmt.attention.settings import AttentionSettings
from nmt.config.schema import AttentionConfig
from nmt.text.vocabulary import PAD
from studies.decomposable import NULL, DecomposableAttention, MeanVector, WordVectors

WIDTH, SIZE, CLASSES = 6, 8, 3
PREMISE, HYPOTHESIS = torch.tensor([[NULL, 5, 9, 4, 7]]), torch.tensor([[NULL, 9, 5, 3]])
EVERY = pytest.mark.parametrize(("score", "normalizer"), list(itertools.product(SCORES, NORMALIZERS)))


def build(score: str = "dot", normalizer: str = "softmax", *, mean: bool = False) -> DecomposableAttention:
    torch.manual_seed(2)
    settings = AttentionSettings.from_config(AttentionConfig(), query_size=SIZE, state_size=SIZE, size=SIZE)
    attention = build_attention(score, normalizer, "global", settings)
    assert isinstance(attention, Attention)
    words = WordVectors(12, WIDTH)
    model = DecomposableAttention(MeanVector(words) if mean else words, attention, WIDTH, SIZE, CLASSES, dropout=0.1)
    for each in (layer for layer in model.modules() if isinstance(layer, nn.Linear) and layer.bias is not None):
        nn.init.normal_(each.bias)  # so that padding, which is compared too, gives something
    return model.double().eval()


def vectors(model: DecomposableAttention, ids: torch.Tensor) -> list[torch.Tensor]:
    assert isinstance(model.words, WordVectors)
    return [model.words.embedding.weight[number] for number in ids[0]]


def aligned(model: DecomposableAttention, words: list[torch.Tensor], others: list[torch.Tensor]) -> list[torch.Tensor]:
    """The weighted sum of the others for each word: softmax of F(x) . F(y)."""
    found = []
    for word in words:
        powers = [math.exp((model.project(word) @ model.project(other)).item()) for other in others]
        shares = torch.tensor(powers, dtype=torch.float64) / sum(powers)
        found.append(torch.stack([share * other for share, other in zip(shares, others, strict=True)]).sum(dim=0))
    return found


def test_attend_is_its_formula() -> None:
    model = build()
    a, b = vectors(model, PREMISE), vectors(model, HYPOTHESIS)
    beta, alpha = model.attend(model.words(PREMISE), model.words(HYPOTHESIS))
    torch.testing.assert_close(beta.context[0], torch.stack(aligned(model, a, b)))
    torch.testing.assert_close(alpha.context[0], torch.stack(aligned(model, b, a)))


def test_compare_is_its_formula() -> None:
    model = build()
    a, b = vectors(model, PREMISE), vectors(model, HYPOTHESIS)
    expected = [model.comparison(torch.cat(pair)) for pair in zip(a, aligned(model, a, b), strict=True)]
    read = model.words(PREMISE)
    compared = model.compare(read, model.attend(read, model.words(HYPOTHESIS))[0])
    torch.testing.assert_close(compared[0], torch.stack(expected))


def test_aggregate_is_its_formula() -> None:
    model = build()
    read = model.words(PREMISE), model.words(HYPOTHESIS)
    of_a, of_b = (torch.randn(1, len(each.mask[0]), SIZE, dtype=torch.float64) for each in read)
    sums = [torch.stack(list(compared[0])).sum(dim=0) for compared in (of_a, of_b)]
    logits = model.aggregate(read[0], of_a, read[1], of_b)
    torch.testing.assert_close(logits[0], model.aggregation(torch.cat(sums)))


def test_the_three_steps_are_the_model() -> None:
    model = build()
    a, b = vectors(model, PREMISE), vectors(model, HYPOTHESIS)
    sums = [
        torch.stack([model.comparison(torch.cat(pair)) for pair in zip(x, aligned(model, x, y), strict=True)]).sum(
            dim=0
        )
        for x, y in ((a, b), (b, a))
    ]
    torch.testing.assert_close(model(PREMISE, HYPOTHESIS).logits[0], model.aggregation(torch.cat(sums)))


@EVERY
def test_padding_changes_nothing(score: str, normalizer: str) -> None:
    model = build(score, normalizer)
    alone = model(PREMISE, HYPOTHESIS)
    longer = torch.tensor([[NULL, *range(3, 12)]])
    premises, hypotheses = (
        torch.cat((nn.functional.pad(ids, (0, longer.shape[1] - ids.shape[1]), value=PAD), longer))
        for ids in (PREMISE, HYPOTHESIS)
    )
    padded = model(premises, hypotheses)
    torch.testing.assert_close(padded.logits[:1], alone.logits, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(padded.alpha[:1, :4, :5], alone.alpha, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(padded.beta[:1, :5, :4], alone.beta, rtol=1e-12, atol=1e-12)
    assert not padded.alpha[0, :, 5:].any()
    assert not padded.beta[0, :, 4:].any()


def test_padding_changes_no_mean() -> None:
    model = build(mean=True)
    padded = nn.functional.pad(PREMISE, (0, 3), value=PAD)
    torch.testing.assert_close(model(padded, HYPOTHESIS).logits, model(PREMISE, HYPOTHESIS).logits)
    (mean,) = model.words(padded).values[0]
    torch.testing.assert_close(mean, model.words.words.embedding.weight[PREMISE[0]].mean(dim=0))


@EVERY
def test_sentences_that_are_empty_or_one_word(score: str, normalizer: str) -> None:
    model = build(score, normalizer)
    ids = torch.tensor([[NULL, PAD], [NULL, 3], [NULL, PAD], [NULL, 3]])
    output = model(ids, ids[[0, 1, 1, 0]])
    assert output.logits.isfinite().all()
    torch.testing.assert_close(output.alpha.sum(dim=-1), torch.ones(4, 2, dtype=torch.float64))
    assert output.alpha[0, 0].tolist() == output.alpha[2, 1].tolist() == [1.0, 0.0]  # of an empty premise
    assert output.beta[3, 1].tolist() == [1.0, 0.0]


@EVERY
def test_both_alignments_are_of_the_same_scores(score: str, normalizer: str) -> None:
    model = build(score, normalizer)
    beta, alpha = model.attend(model.words(PREMISE), model.words(HYPOTHESIS))
    torch.testing.assert_close(alpha.scores, beta.scores.transpose(1, 2))


def test_word_order_plays_no_part() -> None:
    model = build()
    order = [0, 3, 1, 4, 2]
    output, permuted = model(PREMISE, HYPOTHESIS), model(PREMISE[:, order], HYPOTHESIS)
    torch.testing.assert_close(permuted.logits, output.logits)
    torch.testing.assert_close(permuted.beta, output.beta[:, order])


def test_equal_words_mostly_have_the_greatest_scores_from_the_beginning() -> None:
    torch.manual_seed(1)
    settings = AttentionSettings.from_config(AttentionConfig(), query_size=100, state_size=100, size=100)
    attention = build_attention("dot", "softmax", "global", settings)
    assert isinstance(attention, Attention)
    model = DecomposableAttention(WordVectors(40, 100), attention, 100, 100, CLASSES, dropout=0.0).eval()
    ids = torch.arange(2, 30)[None]
    assert (model(ids, ids).alpha[0].argmax(dim=1) == torch.arange(28)).sum() > 20


def test_sampled_weights_have_a_probability() -> None:
    model = build("dot", "hard")
    model.attention.train()
    model.attention.normalizer.soft_share = 0.0  # type: ignore[assignment]
    padded = nn.functional.pad(PREMISE, (0, 3), value=PAD)
    torch.manual_seed(1)
    output = model(padded, HYPOTHESIS)
    scores = model.attend(model.words(padded), model.words(HYPOTHESIS))[0].scores[0, :5]
    beta = [(scores[i].softmax(dim=0) @ output.beta[0, i]).log() for i in range(5)]
    alpha = [(scores[:, j].softmax(dim=0) @ output.alpha[0, j, :5]).log() for j in range(4)]
    torch.testing.assert_close(output.log_prob[0], sum(beta) + sum(alpha))
    assert build()(PREMISE, HYPOTHESIS).log_prob.tolist() == [0.0]
