"""Sentences as shaded text: every word at a place of its own, and pictures of any words."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scripts.running import PNG


@pytest.fixture
def module(script: Callable[[str], Any]) -> Any:
    return script("studies.shaded_words")


def test_words_are_side_by_side(script: Callable[[str], Any]) -> None:
    module = script("studies.shaded_words")

    @given(st.lists(st.text("aé大", min_size=0, max_size=70), min_size=1, max_size=20))
    def check(words: list[str]) -> None:
        assert module.width_of("大a") == 3
        line, end = 0, -1
        for word, (row, column) in zip(words, module.positions_of(words), strict=True):
            assert (row, column) == (line, end + 1) or (row, column) == (line + 1, 0)
            assert column + module.width_of(word) <= module.LINE_LENGTH or column == 0
            line, end = row, column + module.width_of(word)

    check()


def test_lines_follow_each_other(module: Any) -> None:
    long, short = ["word"] * 30, ["a"]
    sentences = [
        module.ShadedSentence(str(len(words)), words, {"w": np.ones(30), "v": np.ones(30)}) for words in (long, short)
    ]
    found = [(line, block if isinstance(block, str) else block[1]) for line, block in module.lay_out(sentences)]
    # Thirty words of five characters fill two lines of 110.
    assert found == [(0, "30"), (1, "w"), (3, "v"), (6, "1"), (7, "w"), (8, "v"), (9, "")]


@pytest.mark.filterwarnings("error")
def test_a_picture(module: Any, tmp_path: Path) -> None:
    words = ["$x", "", "_{", "\U0001f415", "word" * 40]
    weights = np.array([0.0, 1.0, 0.5, 1.2, 0.1])
    sentences = [module.ShadedSentence("a $title", words, {"attention": weights, "saliency": weights}, 3)]
    module.draw_sentences(sentences, tmp_path / "words.png")
    assert (tmp_path / "words.png").read_bytes().startswith(PNG)
    module.draw_sentences([], tmp_path / "none.png")
