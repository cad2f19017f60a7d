"""Training on labeled pairs, and the measures of the predictions, against examples worked by hand."""

import numpy as np
import pytest
import torch

from nmt.alignment.pharaoh import parse_pharaoh
from nmt.attention.attention import Attention
from nmt.attention.build import build_attention
from nmt.attention.settings import AttentionSettings
from nmt.config.schema import AttentionConfig
from studies.decomposable import NULL, DecomposableAttention, WordVectors
from studies.pair_classes import (
    LabeledPair,
    PairPrediction,
    links_of_different_words,
    measure_alignment,
    predict,
    train,
)
from studies.training import WordVocabulary

LETTERS = "abcdefgh"
SAME = [
    LabeledPair(premise, hypothesis, int(premise == hypothesis))
    for premise in LETTERS
    for hypothesis in (premise, LETTERS[LETTERS.index(premise) - 1])
]


def build(vocabulary: WordVocabulary, normalizer: str = "softmax") -> DecomposableAttention:
    torch.manual_seed(1)
    settings = AttentionSettings.from_config(AttentionConfig(), query_size=16, state_size=16, size=16)
    attention = build_attention("dot", normalizer, "global", settings)
    assert isinstance(attention, Attention)
    return DecomposableAttention(WordVectors(len(vocabulary), 16), attention, 16, 16, 2, dropout=0.0)


@pytest.mark.parametrize("normalizer", ["softmax", "hard"])
def test_equal_words_are_told_from_different_ones(normalizer: str) -> None:
    vocabulary = WordVocabulary([LETTERS * 2], [NULL])
    model = build(vocabulary, normalizer)
    lines: list[str] = []
    train(model, vocabulary, SAME * 16, 30, lines.append)
    predictions = predict(model, vocabulary, SAME)
    assert [each.label for each in predictions] == [each.label for each in SAME]
    assert lines[0].startswith("epoch 1 of 30, batch 4 of 4, loss 0.")
    assert len(lines) == 30


def test_predictions_have_weights_without_padding() -> None:
    vocabulary = WordVocabulary(["abcabc"], [NULL])
    examples = [LabeledPair("a b c", "a", 0), LabeledPair("", "a b", 0)] * 40
    predictions = predict(build(vocabulary), vocabulary, examples)
    assert len(predictions) == 80
    assert [each.alpha.shape for each in predictions[:2]] == [(2, 4), (3, 1)]
    assert [each.beta.shape for each in predictions[:2]] == [(4, 2), (1, 3)]
    assert all(np.allclose(each.alpha.sum(axis=1), 1) for each in predictions)


def test_alignment_by_hand() -> None:
    """Of NULL, dog, sleeps and NULL, animal, sleeps, now."""
    alpha = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0.4, 0.6]])  # now: sleeps, which is wrong
    beta = np.array([[1, 0, 0, 0], [0.9, 0.1, 0, 0], [0, 0, 1, 0]])  # dog: NULL, which is missing
    example = LabeledPair("dog sleeps", "animal sleeps now", 0, parse_pharaoh("0-0 1-1"))
    measures = measure_alignment([example], [PairPrediction(0, alpha, beta)])
    assert measures == {
        "aer_alpha": pytest.approx(1 - 4 / 5),
        "aer_beta": pytest.approx(1 - 2 / 3),
        "aer": pytest.approx(1 - 2 / 3),
        "recall_different": 1.0,
    }
    assert measure_alignment([example._replace(gold=None)], [PairPrediction(0, alpha, beta)]) == dict.fromkeys(measures)


def test_links_between_links_of_different_words_words() -> None:
    gold = parse_pharaoh("0-1 1-0")
    assert links_of_different_words("The dog", "animal the", gold).sure == {(1, 0)}
