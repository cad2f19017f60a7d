"""The vocabulary, and the learning rate, which constant gradients make visible."""

import pytest
import torch
from torch import Tensor, nn

from nmt.text.vocabulary import PAD, UNK
from studies.training import WordVocabulary, minimize

NULL = UNK + 1
SENTENCES = [["The", "cat", "sees", "a", "CAT"], ["the", "end"]]


def test_words_that_occur_once_are_unknown() -> None:
    vocabulary = WordVocabulary(SENTENCES)
    assert (set(vocabulary.ids), len(vocabulary)) == ({"the", "cat"}, UNK + 1 + 2)
    the, cat = vocabulary.ids["the"], vocabulary.ids["cat"]
    assert sorted((the, cat)) == [UNK + 1, UNK + 2]
    assert vocabulary.batch([["THE", "dog"], ["cat"], []]).tolist() == [[the, UNK], [cat, PAD], [UNK, PAD]]


def test_a_sentence_may_begin_with_an_id_of_its_own() -> None:
    vocabulary = WordVocabulary(SENTENCES, [NULL])
    assert len(vocabulary) == NULL + 1 + 2
    the, cat = vocabulary.ids["the"], vocabulary.ids["cat"]
    assert sorted((the, cat)) == [NULL + 1, NULL + 2]
    batch = vocabulary.batch([["the", "dog"], ["cat"], []])
    assert batch.tolist() == [[NULL, the, UNK], [NULL, cat, PAD], [NULL, PAD, PAD]]


def test_the_most_frequent_words_are_kept() -> None:
    assert set(WordVocabulary(["aabbbccc"], max_words=2).ids) == {"b", "c"}


def test_the_rate_follows_what_is_left() -> None:
    """Where the gradient is always 1, an update of Adam is the learning rate."""
    model, seen, reports = nn.Linear(1, 1, bias=False).double(), [], list[str]()

    def loss_of(batch: str) -> Tensor:
        seen.append((batch, model.weight.item()))
        return model.weight.sum()

    cost = minimize(model, loss_of, lambda: "abcd", lambda left: 8 * left, 2, reports.append)
    values = torch.tensor([value for _, value in seen] + [model.weight.item()], dtype=torch.float64)
    assert (-values.diff()).tolist() == pytest.approx([8, 7, 6, 5, 4, 3, 2, 1])
    assert "".join(batch for batch, _ in seen) == "abcdabcd"
    assert [report.partition(", loss ")[0] for report in reports] == [f"epoch {n} of 2, batch 4 of 4" for n in (1, 2)]
    assert list(cost) == ["epochs", "seconds", "cpu_seconds"]
