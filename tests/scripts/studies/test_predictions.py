"""Accuracy, macro-F1 and their intervals, and the share of the deciding word, against what is counted by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.intervals import bootstrap_f1, confusion, macro_f1, wilson
from studies.predictions import LabeledSentence, Prediction, clearest_and_wrong, measure


@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    [(0, 10, 0.0, 0.27753), (5, 10, 0.23659, 0.76341), (81, 263, 0.25529, 0.36621), (10, 10, 0.72247, 1.0)],
)
def test_the_interval_of_wilson(right: int, total: int, low: float, high: float) -> None:
    """The third is of Newcombe (1998), table I."""
    assert wilson(right, total) == pytest.approx((right / total, low, high), abs=1e-4)


def test_macro_f1_is_the_mean_of_the_classes() -> None:
    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
    def check(pairs: list[tuple[int, int]]) -> None:
        gold, predicted = zip(*pairs, strict=True)
        scores = []
        for label in sorted({*gold, *predicted}):
            right = sum(g == p == label for g, p in pairs)
            precision = right / predicted.count(label) if label in predicted else 0.0
            recall = right / gold.count(label) if label in gold else 0.0
            scores.append(2 * precision * recall / (precision + recall) if right else 0.0)
        counts = confusion(gold, predicted, 4)
        assert counts.sum() == len(pairs)
        assert float(macro_f1(counts)) == pytest.approx(sum(scores) / len(scores))
        interval = bootstrap_f1(counts)
        assert 0 <= interval.low <= interval.high <= 1

    check()


def test_the_bootstrap_draws_examples() -> None:
    counts = confusion([0] * 50 + [1] * 50, [0] * 40 + [1] * 10 + [1] * 45 + [0] * 5, 2)
    pairs = np.repeat([[0, 0], [0, 1], [1, 1], [1, 0]], [40, 10, 45, 5], axis=0)
    draws = np.random.default_rng(3).integers(0, 100, (1_000, 100))
    values = [macro_f1(confusion(pairs[draw, 0].tolist(), pairs[draw, 1].tolist(), 2)) for draw in draws]
    assert bootstrap_f1(counts)[1:] == pytest.approx(np.quantile(values, (0.025, 0.975)), abs=0.015)
    assert bootstrap_f1(np.diag([3, 4])) == (1.0, 1.0, 1.0)


def test_a_table_of_predictions() -> None:
    def prediction(length: int, label: int, probability: float, weight: float | None, first: float) -> Prediction:
        """Return the prediction for a sentence whose first word decides."""
        weights = None if weight is None else np.array([weight, *[(1 - weight) / (length - 1)] * (length - 1)])
        saliency = np.array([first, 1 - first, *[0.0] * (length - 2)])
        example = LabeledSentence(["w"] * length, label, 0)
        return Prediction(example, np.array([1 - probability, probability]), weights, saliency)

    row = measure(
        [prediction(19, 1, 0.9, 0.6, 0.5), prediction(20, 0, 0.2, 0.01, 0.7), prediction(40, 1, 0.4, 0.2, 0.3)], 2
    )
    assert row["accuracy"] == pytest.approx(2 / 3)
    assert (row["to_19"], row["20_to_39"], row["from_40"]) == (1, 1, 0)
    assert (row["weight"], row["weight_first"]) == pytest.approx((0.27, 2 / 3))
    assert (row["saliency"], row["saliency_first"]) == pytest.approx((0.5, 1 / 3))
    alone = measure([prediction(5, 1, 0.9, None, 0.5)], 2)
    assert [alone[name] for name in ("weight", "weight_first", "correlation", "from_40")] == [None] * 4
    even = measure([prediction(4, 1, 0.9, 0.25, 0.5)], 2)
    assert (even["weight"], even["weight_first"]) == (0.25, 0)


def test_the_clearest_and_the_wrong() -> None:
    def prediction(label: int, probability: float) -> Prediction:
        example = LabeledSentence(["w"], label)
        return Prediction(example, np.array([1 - probability, probability]), np.ones(1), np.ones(1))

    labels, probabilities = (0, 0, 1, 1, 0, 0), (0.3, 0.1, 0.8, 0.2, 0.9, 0.6)
    predictions = list(map(prediction, labels, probabilities))
    chosen = clearest_and_wrong(predictions, 2, 2)
    assert [(each.example.label, each.probabilities[1]) for each in chosen] == [(0, 0.1), (1, 0.8), (0, 0.9), (1, 0.2)]
    assert clearest_and_wrong(predictions[:3], 2, 2)[2:] == [predictions[0]]
