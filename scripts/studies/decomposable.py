"""Decomposable attention: attend, compare, aggregate  (Parikh et al., 2016), with any score and normalizer."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nmt.attention.attention import Attended, Attention, Memory
from nmt.text.vocabulary import PAD, UNK
from studies.training import Ids

NULL = UNK + 1  # the empty word that every sentence begins with: words without a counterpart can be aligned with it
Compared = Float[Tensor, "batch length compared"]


class Vectors(NamedTuple):
    """Sentences as vectors; the mask is False on padding."""

    values: Float[Tensor, "batch length size"]
    mask: Bool[Tensor, "batch length"]


class PairOutput(NamedTuple):
    """Logits of the classes, and the soft alignments.

    Attributes:
        logits: of the classes.
        beta: weights of the words of b for each word of a.
        alpha: weights of the words of a for each word of b.
        log_prob: of all weights of a pair that were sampled; 0 if none are.
    """

    logits: Float[Tensor, "batch classes"]
    beta: Float[Tensor, "batch a b"]
    alpha: Float[Tensor, "batch b a"]
    log_prob: Float[Tensor, " batch"]


class WordVectors(nn.Module):
    """A vector for each word."""

    def __init__(self, vocabulary: int, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size, padding_idx=PAD)

    def forward(self, ids: Ids) -> Vectors:
        return Vectors(self.embedding(ids), ids != PAD)


class MeanVector(nn.Module):
    """The mean of a sentence's vectors, as a sentence of one word: there is nothing left to attend to."""

    def __init__(self, words: WordVectors) -> None:
        super().__init__()
        self.words = words

    def forward(self, ids: Ids) -> Vectors:
        values, mask = self.words(ids)
        mean = (values * mask[:, :, None]).sum(dim=1, keepdim=True) / mask.sum(dim=1)[:, None, None]
        return Vectors(mean, mask[:, :1])  # NULL is always there


class DecomposableAttention(nn.Module):
    """Classes of pairs of sentences (a, b) of word vectors; F, G and H are networks of two layers.

        attend     e_ij = score(F(a_i), F(b_j)),  beta_i = sum_j p(e_i.)_j b_j,  alpha_j = sum_i p(e_.j)_i a_i
        compare    v_i = G([a_i; beta_i]),  w_j = G([b_j; alpha_j])
        aggregate  logits = W H([sum_i v_i; sum_j w_j])

    p is the normalizer. With the dot score and softmax this is the model of Parikh et al. (2016). The order of words
    plays no part.
    """

    def __init__(
        self, words: nn.Module, attention: Attention, width: int, size: int, classes: int, dropout: float
    ) -> None:
        """Make the networks; `width` is the size of a word's vector, `size` that of all layers."""
        super().__init__()
        self.words = words
        self.project = two_layers(width, size, dropout)
        self.attention = attention
        self.comparison = two_layers(2 * width, size, dropout)
        self.aggregation = nn.Sequential(two_layers(2 * size, size, dropout), nn.Linear(size, classes))

    def forward(self, premises: Ids, hypotheses: Ids) -> PairOutput:
        a, b = self.words(premises), self.words(hypotheses)
        beta, alpha = self.attend(a, b)
        logits = self.aggregate(a, self.compare(a, beta), b, self.compare(b, alpha))
        log_prob = log_prob_of(beta, a) + log_prob_of(alpha, b)
        return PairOutput(logits, beta.weights, alpha.weights, log_prob)

    def attend(self, a: Vectors, b: Vectors) -> tuple[Attended, Attended]:
        """Align each word of a with the words of b, and each of b with those of a, by the same scores."""
        query, states = self.project(a.values), self.project(b.values)
        scores = self.attention.score(query, self.attention.score.project(states, b.mask))
        beta = self.attention.attend(scores, query, Memory(states, b.values, b.mask), 0)
        alpha = self.attention.attend(scores.transpose(1, 2), states, Memory(query, a.values, a.mask), 0)
        return beta, alpha

    def compare(self, words: Vectors, aligned: Attended) -> Compared:
        """Compare each word with what it is aligned with."""
        compared: Tensor = self.comparison(torch.cat((words.values, aligned.context), dim=-1))
        return compared

    def aggregate(
        self, a: Vectors, compared_a: Compared, b: Vectors, compared_b: Compared
    ) -> Float[Tensor, "batch classes"]:
        """Return the logits of the sums over the words of both sentences."""
        sides = ((a, compared_a), (b, compared_b))
        sums = [(compared * words.mask[:, :, None]).sum(dim=1) for words, compared in sides]
        logits: Tensor = self.aggregation(torch.cat(sums, dim=-1))
        return logits


def two_layers(inputs: int, size: int, dropout: float) -> nn.Sequential:
    """Return max(0, W max(0, V x)), with biases, and dropout before V and W; initialized as He et al. (2015).

    So scores differ from the beginning, and equal words mostly have the greatest: F(x) . F(x) is mostly > F(x) . F(y).
    """
    layers = [nn.Linear(inputs, size), nn.Linear(size, size)]
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*(module for layer in layers for module in (nn.Dropout(dropout), layer, nn.ReLU())))


def log_prob_of(attended: Attended, queries: Vectors) -> Float[Tensor, " batch"]:
    """Return the log-probability of all weights of a sentence's words that were sampled; 0 if none are."""
    sampled = attended.sampled.log_prob
    return attended.weights.new_zeros(len(queries.mask)) if sampled is None else (sampled * queries.mask).sum(dim=1)
