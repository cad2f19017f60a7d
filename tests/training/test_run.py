"""A training run; most of it is tested by the commands (tests/test_train.py)."""

import datasets

from nmt.data.tables import EncodedCorpus, Ragged
from nmt.training.run import longest_source


def test_the_longest_source_is_one_that_is_trained_on() -> None:
    sides = Ragged.of([[5] * size for size in (3, 7, 100, 2)])
    corpus = datasets.Dataset.from_dict({"source": [""] * 4, "target": [""] * 4})
    encoded = EncodedCorpus(corpus, sides, sides)
    assert [longest_source(encoded, most) for most in (2, 10, 100)] == [2, 7, 100]
