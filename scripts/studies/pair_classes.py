"""Labeled pairs of sentences: training on them, and what a model answers, with its measures."""

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
from studies.learning import BATCH, Vocabulary, minimize

MEASURES = ("aer_alpha", "aer_beta", "aer", "recall_different")  # of alignment
Array = np.ndarray


class Example(NamedTuple):
    """A pair of sentences, the number of its class, and its gold links, (premise, hypothesis), where they are known."""

    premise: str
    hypothesis: str
    label: int
    gold: Links | None = None


class Answer(NamedTuple):
    """The class that a model chooses for a pair, and its weights; NULL is number 0 of both sentences."""

    label: int
    alpha: Float[Array, "hypothesis premise"]
    beta: Float[Array, "premise hypothesis"]


def train(
    model: DecomposableAttention,
    vocabulary: Vocabulary,
    examples: Sequence[Example],
    epochs: int,
    report: Callable[[str], None],
) -> dict[str, float]:
    """Minimize cross-entropy; the rate falls linearly to 0. Return what it cost."""

    def shuffled() -> list[list[Example]]:
        return [[examples[row] for row in rows.tolist()] for rows in torch.randperm(len(examples)).split(BATCH)]

    return minimize(model, partial(loss_of, model, vocabulary), shuffled, lambda left: 1e-3 * left, epochs, report)


def loss_of(model: DecomposableAttention, vocabulary: Vocabulary, examples: Sequence[Example]) -> Float[Tensor, ""]:
    """Return the mean cross-entropy; where weights are sampled (`hard`), with the term of REINFORCE."""
    premises, hypotheses, labels, _ = zip(*examples, strict=True)
    output = model(*(vocabulary.batch(map(text_words, side)) for side in (premises, hypotheses)))
    losses = nn.functional.cross_entropy(output.logits, torch.tensor(labels), reduction="none")
    advantage = (losses.mean() - losses).detach()  # the reward is -loss, the baseline the batch's mean
    return (losses - advantage * output.log_prob).mean()


@torch.no_grad()
def answer(model: DecomposableAttention, vocabulary: Vocabulary, examples: Sequence[Example]) -> list[Answer]:
    """Classify pairs."""
    model.eval()
    answers = []
    for start in range(0, len(examples), BATCH):
        premises, hypotheses, *_ = zip(*examples[start : start + BATCH], strict=True)
        a, b = (vocabulary.batch(map(text_words, side)) for side in (premises, hypotheses))
        output = model(a, b)
        labels, alphas, betas = output.logits.argmax(dim=1), output.alpha.numpy(), output.beta.numpy()
        lengths = zip((a > 0).sum(dim=1).tolist(), (b > 0).sum(dim=1).tolist(), strict=True)
        for label, alpha, beta, (i, j) in zip(labels.tolist(), alphas, betas, lengths, strict=True):
            answers.append(Answer(label, alpha[:j, :i], beta[:i, :j]))
    return answers


def measure_alignment(examples: Sequence[Example], answers: Sequence[Answer]) -> dict[str, float | None]:
    """Return the AER of the links that alpha gives, that beta gives and that both give; None without gold links.

    Also the share of the links between different words, such as an animal and its general name, that alpha gives.
    """
    gold = [each.gold for each in examples if each.gold is not None]
    if len(gold) < len(examples):
        return dict.fromkeys(MEASURES)
    alphas = [links_of(each.alpha) for each in answers]
    betas = [links_of(each.beta) for each in answers]
    both = [intersection(*links) for links in zip(alphas, betas, strict=True)]
    reverse = [{(i, j) for j, i in links} for links in betas]
    errors = [alignment_error_rate(links, gold).aer for links in (alphas, reverse, both)]
    recall = alignment_error_rate(alphas, [different(*each[:2], each[3]) for each in examples if each[3]]).recall
    return dict(zip(MEASURES, (*errors, recall), strict=True))


def words_of(sentence: str) -> list[str]:
    """Return the words of a sentence as the models see them."""
    return [word.lower() for word in text_words(sentence)]


def different(premise: str, hypothesis: str, gold: Links) -> Links:
    """Return the sure links between different words."""
    a, b = words_of(premise), words_of(hypothesis)
    links = frozenset((i, j) for i, j in gold.sure if a[i] != b[j])
    return Links(links, links)


def links_of(weights: Float[Array, "words others"]) -> set[Link]:
    """Link each word to the word of its greatest weight, (other, word), if neither is NULL."""
    return {(i - 1, j - 1) for i, j in argmax_links(weights) if i and j}
