"""Reproducible random choices, whatever the machine and the version of Python."""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Chooser:
    """Choices seeded by a text, all by `Random.random`: the only method that Python guarantees not to change."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self._random.random() * len(options))]

    def between(self, low: int, high: int) -> int:
        """An integer from `low` to `high` inclusive; `low` if the range is empty."""
        return low + int(self._random.random() * (max(low, high) - low + 1))

    def weighted(self, options: Sequence[tuple[float, T]]) -> T:
        """One of (weight, option)."""
        mark = self._random.random() * sum(weight for weight, _ in options)
        for weight, option in options:
            mark -= weight
            if mark < 0:
                return option
        return options[-1][1]
