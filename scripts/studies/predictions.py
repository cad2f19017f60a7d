"""The predictions of a classifier of sentences, and measures of their quality."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from nmt.evaluation.correlation import rank_correlation
from studies.intervals import bootstrap_f1, confusion, wilson

LENGTHS = {"to_19": (0, 19), "20_to_39": (20, 39), "from_40": (40, 10**9)}  # words
Array = np.ndarray


class LabeledSentence(NamedTuple):
    """Words with their class, and the position of the word that decides it, if it is known."""

    words: list[str]
    label: int
    position: int | None = None


@dataclass(frozen=True)
class Prediction:
    """The probabilities of the classes of a sentence, the weights of its words (if it has a pooling) and saliency."""

    example: LabeledSentence
    probabilities: Float[Array, " classes"]
    weights: Float[Array, " words"] | None
    saliency: Float[Array, " words"]

    @property
    def predicted(self) -> int:
        """The class of the greatest probability."""
        return int(self.probabilities.argmax())

    @property
    def is_correct(self) -> bool:
        """Whether the predicted class is that of the sentence."""
        return self.predicted == self.example.label

    @property
    def certainty(self) -> float:
        """The probability of the correct class."""
        return float(self.probabilities[self.example.label])


def measure(predictions: Sequence[Prediction], classes: int) -> dict[str, Any]:
    """Return accuracy, also by length, macro-F1, and the fraction of the weight and saliency on the deciding word.

    Measures without sentences that they are defined for are None.
    """
    gold = [prediction.example.label for prediction in predictions]
    counts = confusion(gold, [prediction.predicted for prediction in predictions], classes)
    by_length: dict[str, float | None] = {}
    for name, (shortest, longest) in LENGTHS.items():
        correct = [each.is_correct for each in predictions if shortest <= len(each.example.words) <= longest]
        by_length[name] = float(np.mean(correct)) if correct else None
    pairs = [(each.weights[None], each.saliency[None]) for each in predictions if each.weights is not None]
    return {
        **wilson(int(counts.trace()), len(predictions)).columns("accuracy"),
        **bootstrap_f1(counts).columns("macro_f1"),
        **by_length,
        **on_deciding_word("weight", predictions, [each.weights for each in predictions]),
        **on_deciding_word("saliency", predictions, [each.saliency for each in predictions]),
        "correlation": rank_correlation(*zip(*pairs, strict=True)).spearman if pairs else None,
    }


def on_deciding_word(
    name: str, predictions: Sequence[Prediction], weightings: Sequence[Float[Array, " _"] | None]
) -> dict[str, float | None]:
    """Return the mean weight of the deciding word, and the fraction of sentences in which all others have less."""
    weight_and_is_first = [
        (weight := weights[prediction.example.position], (weights < weight).sum() == len(weights) - 1)
        for prediction, weights in zip(predictions, weightings, strict=True)
        if weights is not None and prediction.example.position is not None
    ]
    mean, first = np.mean(weight_and_is_first, axis=0).tolist() if weight_and_is_first else (None, None)
    return {name: mean, f"{name}_first": first}


def clearest_and_wrong(predictions: Sequence[Prediction], classes: int, most: int) -> list[Prediction]:
    """Return the most certain prediction of each class, and the worst mistakes, at most `most` of both.

    If none is wrong, the least certain prediction takes the place of the mistakes.
    """
    by_certainty = sorted(predictions, key=lambda each: -each.certainty)
    by_label = [next((each for each in by_certainty if each.example.label == label), None) for label in range(classes)]
    clearest = [each for each in by_label if each is not None and each.is_correct]
    worst = by_certainty[: -most - 1 : -1]
    return clearest[:most] + ([each for each in worst if not each.is_correct] or worst[:1])
