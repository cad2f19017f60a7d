"""The answers of a classifier, and measures of how right they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from nmt.evaluation.correlation import rank_correlation
from studies.intervals import bootstrap_f1, confusion, wilson

LENGTHS = {"to_19": (0, 19), "20_to_39": (20, 39), "from_40": (40, 10**9)}  # words
Array = np.ndarray


class Example(NamedTuple):
    """Words with their class, and the position of the word that decides it, where it is known."""

    words: list[str]
    label: int
    position: int | None = None


@dataclass(frozen=True)
class Reading:
    """A classifier's reading of a sentence: the classes' probabilities, the words' weights (if any) and saliency."""

    example: Example
    probabilities: Float[Array, " classes"]
    weights: Float[Array, " words"] | None
    saliency: Float[Array, " words"]

    @property
    def predicted(self) -> int:
        """The class of the greatest probability."""
        return int(self.probabilities.argmax())

    @property
    def is_right(self) -> bool:
        return self.predicted == self.example.label

    @property
    def certainty(self) -> float:
        """The probability of the right class."""
        return float(self.probabilities[self.example.label])


def measure(readings: Sequence[Reading], classes: int) -> dict[str, Any]:
    """Return accuracy, also by length, macro-F1, and the share of the deciding word; None if there is no such."""
    counts = confusion([each.example.label for each in readings], [each.predicted for each in readings], classes)
    by_length: dict[str, float | None] = {}
    for name, (shortest, longest) in LENGTHS.items():
        right = [each.is_right for each in readings if shortest <= len(each.example.words) <= longest]
        by_length[name] = float(np.mean(right)) if right else None
    pairs = [(each.weights[None], each.saliency[None]) for each in readings if each.weights is not None]
    return {
        **wilson(int(counts.trace()), len(readings)).columns("accuracy"),
        **bootstrap_f1(counts).columns("macro_f1"),
        **by_length,
        **on_deciding_word("weight", readings, [each.weights for each in readings]),
        **on_deciding_word("saliency", readings, [each.saliency for each in readings]),
        "correlation": rank_correlation(*zip(*pairs, strict=True)).spearman if pairs else None,
    }


def on_deciding_word(
    name: str, readings: Sequence[Reading], weightings: Sequence[Float[Array, " _"] | None]
) -> dict[str, float | None]:
    """Return the mean weight of the deciding word, and the share of sentences in which all others have less."""
    found = [
        (own := weights[reading.example.position], (weights < own).sum() == len(weights) - 1)
        for reading, weights in zip(readings, weightings, strict=True)
        if weights is not None and reading.example.position is not None
    ]
    mean, first = np.mean(found, axis=0).tolist() if found else (None, None)
    return {name: mean, f"{name}_first": first}


def clearest_and_wrong(readings: Sequence[Reading], classes: int, most: int) -> list[Reading]:
    """Return the most certain reading of each class, and the worst mistakes, at most `most` of both.

    Where none is wrong, the least certain reading stands for the mistakes.
    """
    by_certainty = sorted(readings, key=lambda each: -each.certainty)
    by_label = [next((each for each in by_certainty if each.example.label == label), None) for label in range(classes)]
    clear = [each for each in by_label if each is not None and each.is_right]
    worst = by_certainty[: -most - 1 : -1]
    return clear[:most] + ([each for each in worst if not each.is_right] or worst[:1])
