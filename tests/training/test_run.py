"""A training run; most of it is tested by the commands (tests/test_train.py)."""

from collections.abc import Callable
from typing import Any

import datasets

from nmt.data.tables import EncodedCorpus, Ragged
from nmt.training.run import longest_source


def test_the_longest_source_is_one_that_is_trained_on() -> None:
    sides = Ragged.of([[5] * size for size in (3, 7, 100, 2)])
    corpus = datasets.Dataset.from_dict({"source": [""] * 4, "target": [""] * 4})
    encoded = EncodedCorpus(corpus, sides, sides)
    assert [longest_source(encoded, most) for most in (2, 10, 100)] == [2, 7, 100]
    longer = EncodedCorpus(corpus, sides, Ragged.of([[5] * size for size in (3, 11, 100, 2)]))
    assert longest_source(longer, 10) == 3  # the pair of 7 is left out for its target


def test_a_limit_below_all_sentences_is_told(tiny_options: list[str], call: Callable[..., Any]) -> None:
    done = call("train", *tiny_options, "batch.max_length=1", "trainer.max_steps=1", "run_dir=run")
    assert done.returncode == 2
    assert "no training pair is left: every one of" in done.stderr
    assert "batch.max_length=1 subwords, or of none; raise it" in done.stderr
    assert "Traceback" not in done.stderr
