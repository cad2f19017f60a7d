"""Labeled pairs of sentences: training on them, the predictions of a model, and measures of its alignment."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.alignment.aer import alignment_error_rate
from nmt.alignment.links import argmax_links, intersection
from nmt.alignment.pharaoh import Link, Links
from nmt.text.words import text_words
from studies.decomposable import DecomposableAttention
from studies.training import BATCH, WordVocabulary, minimize

MEASURES = ("aer_alpha", "aer_beta", "aer", "recall_different")  # of alignment
Array = np.ndarray


class LabeledPair(NamedTuple):
    """A pair of sentences, the number of its class, and its gold links, (premise, hypothesis), if they are known."""

    premise: str
    hypothesis: str
    label: int
    gold: Links | None = None


class PairPrediction(NamedTuple):
    """The class that a model predicts for a pair, and its weights; NULL is number 0 of both sentences."""

    label: int
    alpha: Float[Array, "hypothesis premise"]
    beta: Float[Array, "premise hypothesis"]


def train(
    model: DecomposableAttention,
    vocabulary: WordVocabulary,
    examples: Sequence[LabeledPair],
    epochs: int,
    report: Callable[[str], None],
) -> dict[str, float]:
    """Minimize cross-entropy; the learning rate falls linearly to 0. Return the cost, as `minimize`."""

    def shuffled_batches() -> list[list[LabeledPair]]:
        return [[examples[row] for row in rows.tolist()] for rows in torch.randperm(len(examples)).split(BATCH)]

    def learning_rate(remaining: float) -> float:
        return 1e-3 * remaining

    return minimize(model, partial(loss_of, model, vocabulary), shuffled_batches, learning_rate, epochs, report)


def loss_of(
    model: DecomposableAttention, vocabulary: WordVocabulary, examples: Sequence[LabeledPair]
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy; if weights are sampled (`hard`), with the term of REINFORCE."""
    premises, hypotheses, labels, _ = zip(*examples, strict=True)
    output = model(*(vocabulary.batch(map(text_words, side)) for side in (premises, hypotheses)))
    losses = nn.functional.cross_entropy(output.logits, torch.tensor(labels), reduction="none")
    advantage = (losses.mean() - losses).detach()  # the reward is -loss, the baseline the batch's mean
    return (losses - advantage * output.log_prob).mean()


@torch.no_grad()
def predict(
    model: DecomposableAttention, vocabulary: WordVocabulary, examples: Sequence[LabeledPair]
) -> list[PairPrediction]:
    """Classify pairs."""
    model.eval()
    predictions = []
    for start in range(0, len(examples), BATCH):
        premises, hypotheses, *_ = zip(*examples[start : start + BATCH], strict=True)
        a, b = (vocabulary.batch(map(text_words, side)) for side in (premises, hypotheses))
        output = model(a, b)
        labels, alphas, betas = output.logits.argmax(dim=1), output.alpha.numpy(), output.beta.numpy()
        lengths = zip((a > 0).sum(dim=1).tolist(), (b > 0).sum(dim=1).tolist(), strict=True)
        for label, alpha, beta, (i, j) in zip(labels.tolist(), alphas, betas, lengths, strict=True):
            predictions.append(PairPrediction(label, alpha[:j, :i], beta[:i, :j]))
    return predictions


def measure_alignment(
    examples: Sequence[LabeledPair], predictions: Sequence[PairPrediction]
) -> dict[str, float | None]:
    """Return the AER of the links that alpha gives, that beta gives and that both give; None without gold links.

    Also the fraction of the links between different words, such as an animal and its general name, that alpha gives.
    """
    gold = [example.gold for example in examples if example.gold is not None]
    if len(gold) < len(examples):
        return dict.fromkeys(MEASURES)
    by_alpha = [links_of(prediction.alpha) for prediction in predictions]
    by_beta = [links_of(prediction.beta) for prediction in predictions]
    by_both = [intersection(*links) for links in zip(by_alpha, by_beta, strict=True)]
    by_beta = [{(i, j) for j, i in links} for links in by_beta]
    errors = [alignment_error_rate(links, gold).aer for links in (by_alpha, by_beta, by_both)]
    of_different = [links_of_different_words(*pair[:2], links) for pair, links in zip(examples, gold, strict=True)]
    recall = alignment_error_rate(by_alpha, of_different).recall
    return dict(zip(MEASURES, (*errors, recall), strict=True))


def words_of(sentence: str) -> list[str]:
    """Return the words of a sentence as the models see them."""
    return [word.lower() for word in text_words(sentence)]


def links_of_different_words(premise: str, hypothesis: str, gold: Links) -> Links:
    """Return the sure links between different words."""
    a, b = words_of(premise), words_of(hypothesis)
    links = frozenset((i, j) for i, j in gold.sure if a[i] != b[j])
    return Links(links, links)


def links_of(weights: Float[Array, "words others"]) -> set[Link]:
    """Link each word to the word of its greatest weight, (other, word), if neither is NULL."""
    return {(i - 1, j - 1) for i, j in argmax_links(weights) if i and j}
