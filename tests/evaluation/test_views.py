"""Links of several views of the same pairs against gold."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch

from nmt.alignment.aer import read_gold
from nmt.alignment.links import word_links
from nmt.alignment.pharaoh import Links, parse_pharaoh
from nmt.alignment.targets import AlignmentTargets
from nmt.alignment.weights import Alignment
from nmt.config.schema import LinksConfig, ModelConfig, SearchConfig, TokenizerConfig
from nmt.data.tables import EncodedCorpus, Ragged
from nmt.evaluation.saliency import Explainer
from nmt.evaluation.views import AlignmentViews, alignment_metrics, alignment_settings, gold_scores
from nmt.models.build import build_model
from nmt.text.tokenizer import build_tokenizers
from nmt.translator import Translation, Translator

SOURCES, TARGETS = ["a b"], ["A B C"]
GOLD = [parse_pharaoh("0-0 1-1 1?2")]
FORWARD = np.array([[0.6, 0.4], [0.4, 0.6], [0.55, 0.45]])  # [target words, source words]
BACKWARD = np.array([[0.9, 0.1, 0.0], [0.0, 0.2, 0.8]])  # [source words, target words]
NAMES = {
    f"{view}_{score}" for view in ("reverse", "intersection", "saliency") for score in ("aer", "precision", "recall")
}


class Fixed:
    """Gives every pair the same weights, as attention and as saliency."""

    def __init__(self, weights: np.ndarray) -> None:
        self.search, self.precision, self.device = SearchConfig(), "fp32", torch.device("cpu")
        self.checkpoint: Path | None = None
        self.ensemble: list[Path] = []
        self.replaces_unknown = False
        self.step: int | None = None
        self.weights = weights

    def translate(self, sentences: Sequence[str]) -> list[Translation]:
        raise AssertionError("gold speaks of the references")

    def translations(self, translations: Sequence[Translation]) -> list[Alignment]:
        raise AssertionError("gold speaks of the references")

    def cross_entropy(self, sources: Sequence[str], targets: Sequence[str]) -> float:
        return 2.0

    def detokenize(self, lines: Sequence[str]) -> list[str]:
        return list(lines)

    def greedy(self, sentences: Sequence[str]) -> list[Translation]:
        return self.translate(sentences)

    def align(self, sources: Sequence[str], targets: Sequence[str], words: str = "spaces") -> list[Alignment]:
        return [Alignment(s.split(), t.split(), self.weights) for s, t in zip(sources, targets, strict=True)]

    pairs = align


def measured(gold: list[Links] | None = GOLD, **views: Any) -> dict[str, Any]:
    return alignment_metrics(Fixed(FORWARD), SOURCES, TARGETS, gold, AlignmentViews(**views))


def test_attention_alone() -> None:
    # Links 0-0, 1-1 and the wrong 0-2.
    found = measured()
    assert (found["aer"], found["aer_sentences"]) == (pytest.approx(1 - (2 + 2) / (3 + 2)), 1)
    assert found["gold_sentences"] == 1
    assert (found["alignment_precision"], found["alignment_recall"]) == (pytest.approx(2 / 3), 1)
    assert {name for name, value in found.items() if value is None} == NAMES


def test_a_threshold_may_link_a_word_twice() -> None:
    # Every weight of at least 0.45: 0-0, 1-1, 0-2 and 1-2.
    found = measured(links=LinksConfig(method="threshold", threshold=0.45))
    assert found["alignment_precision"] == pytest.approx(3 / 4)


def test_the_intersection_with_the_reverse_direction() -> None:
    # The reverse run links 0-0 and 1-2: of the former both are sure, of the latter only the reverse run.
    found = measured(reverse=Fixed(BACKWARD))
    assert found["reverse_aer"] == pytest.approx(1 - (1 + 2) / (2 + 2))
    assert found["intersection_aer"] == pytest.approx(1 - (1 + 1) / (1 + 2))
    assert (found["intersection_precision"], found["intersection_recall"]) == (1, pytest.approx(1 / 2))
    assert found["aer"] == measured()["aer"]
    assert found["saliency_aer"] is None


def test_the_saliency_is_scored_by_the_same_rule() -> None:
    right = Fixed(np.array([[0.9, 0.1], [0.2, 0.8], [0.2, 0.8]]))
    found = measured(explainer=right)
    assert (found["saliency_aer"], found["saliency_recall"]) == (0, 1)
    assert measured(explainer=right, links=LinksConfig(method="threshold", threshold=0.85))["saliency_recall"] == 1 / 2


def test_without_gold_there_is_nothing_to_agree_with() -> None:
    found = measured(gold=None, reverse=Fixed(BACKWARD), explainer=Fixed(FORWARD))
    counts = {"aer_sentences": 0, "gold_sentences": 0}
    assert {name: found.pop(name) for name in counts} == counts
    assert found.keys() == measured().keys() - counts.keys()
    assert set(found.values()) == {None}


def test_pairs_whose_words_are_counted_differently_do_not_count() -> None:
    aligned = [Alignment(["a", "b"], ["A"], np.array([[0.3, 0.7]])), Alignment(["a", "'", "b"], ["A"], np.eye(1, 3))]
    links = word_links(aligned, ["a b", "a'b"], ["A", "A"], LinksConfig())
    assert links == [{(1, 0)}, None]
    assert gold_scores(links, [parse_pharaoh("1-0"), parse_pharaoh("0-0")])["aer"] == 0
    assert gold_scores([None], [parse_pharaoh("1-0")]) == {
        "aer": None,
        "alignment_precision": None,
        "alignment_recall": None,
    }


def segmented_translator(*lines: str) -> Translator:
    tokenizers = build_tokenizers(lines, lines, TokenizerConfig(kind="whitespace"))
    size = len(tokenizers.source)
    model = build_model(ModelConfig(embedding_size=8, hidden_size=16), size, size, joint=True)
    return Translator(model, tokenizers, SearchConfig(), torch.device("cpu"))


@pytest.mark.parametrize("marks", [("ol@@ d river", "vieille riv@@ ière"), ("▁ol d ▁river", "▁vieille ▁riv ière")])
def test_in_segmented_text_gold_counts_the_pieces(marks: tuple[str, str]) -> None:
    """As guided alignment teaches them: the links that it is taught are found."""
    source, target = marks
    translator = segmented_translator(source, target)
    corpus = datasets.Dataset.from_dict({"source": [source], "target": [target], "alignment": ["0-0 1-0 2-1 2-2"]})
    encoded = EncodedCorpus(corpus, *(Ragged.of(translator.tokenizers.source.encode([line])) for line in marks))
    targets = AlignmentTargets(corpus, translator.tokenizers)
    (taught,) = targets(np.arange(1), [encoded.source[0]], [encoded.target[0]])
    (aligned,) = translator.align([source], [target])
    assert aligned.weights.shape == taught.shape == (3, 3)
    (explained,) = Explainer(translator).pairs([source], [target])
    assert explained.source_words == aligned.source_words
    gold = read_gold(corpus, "test")
    assert gold is not None
    ideal = [Alignment(aligned.source_words, aligned.target_words, taught.astype(np.float64))]
    links = word_links(ideal, [source], [target], LinksConfig(method="threshold", threshold=0.4))
    assert gold_scores(links, gold)["aer"] == 0
    found = alignment_metrics(translator, [source], [target], gold, AlignmentViews())
    assert (found["aer_sentences"], found["gold_sentences"], found["aer"] is None) == (1, 1, False)


def test_settings_travel_with_the_scores() -> None:
    assert alignment_settings(AlignmentViews()) == {
        "alignment_method": "argmax",
        "alignment_threshold": None,
        "alignment_words": "split",
        "reverse": None,
    }
    views = AlignmentViews(links=LinksConfig(method="threshold", threshold=0.2), reverse_run="runs/b")
    assert alignment_settings(views) == {
        "alignment_method": "threshold",
        "alignment_threshold": 0.2,
        "alignment_words": "split",
        "reverse": "runs/b",
    }
