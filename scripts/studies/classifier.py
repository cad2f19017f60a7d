"""A recurrent classifier of sentences: the encoder of the translator, a pooling of its states, a linear layer."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nmt.attention.attention import Attended
from nmt.attention.build import build_attention
from nmt.attention.pooling import AttentionPooling
from nmt.attention.windows import WINDOWS
from nmt.config.schema import AttentionConfig, ModelConfig
from nmt.errors import UserError, unknown
from nmt.models.decoder import attention_settings
from nmt.models.encoder import EncoderOutput, Recurrent
from nmt.models.layers import Embedding
from nmt.text.vocabulary import PAD
from studies.predictions import LabeledSentence, Prediction
from studies.training import BATCH, Ids, WordVocabulary, minimize

POOLINGS = ("last", "mean")  # besides SCORE-NORMALIZER-WINDOW
SIZE = ModelConfig(embedding_size=64, hidden_size=128, dropout=0.1)
MAX_WORDS = 20_000  # of the vocabulary
ENTROPY = 0.01  # weight of the entropy of weights that are sampled


class MeanPooling(nn.Module):
    """The mean of the states: attention with uniform weights."""

    def forward(self, states: Float[Tensor, "batch source state"], mask: Bool[Tensor, "batch source"]) -> Attended:
        weights = (mask / mask.sum(dim=1, keepdim=True)).to(states.dtype)[:, None]
        return Attended(weights @ states, weights, torch.zeros_like(weights))


class Classifier(nn.Module):
    """log-odds of the classes = W c + b, c the last states of both directions, their mean, or attention's context.

    Raises:
        UserError: the pooling does not exist.
    """

    def __init__(self, vocabulary: WordVocabulary, classes: int, pooling: str) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.encoder = Recurrent(SIZE, Embedding(len(vocabulary), SIZE.embedding_size, SIZE.dropout))
        self.pooling = build_pooling(pooling)
        self.output = nn.Linear(self.encoder.state_size, classes)

    def forward(self, ids: Ids) -> tuple[Float[Tensor, "batch classes"], Attended | None]:
        """Return the log-odds and, unless the last state is used, what the pooling attended to."""
        mask = ids != PAD
        encoded: EncoderOutput = self.encoder(ids, mask.sum(dim=1))
        if self.pooling is None:
            return self.output(encoded.summary), None
        attended: Attended = self.pooling(encoded.states, mask)
        return self.output(attended.context[:, 0]), attended


def build_pooling(name: str) -> nn.Module | None:
    """Return the pooling of a name, None for the last state; raise UserError if there is no such pooling."""
    if name in POOLINGS:
        return MeanPooling() if name == "mean" else None
    score, _, rest = name.partition("-")
    normalizer, _, window = rest.partition("-")
    if not window:
        raise UserError(f"unknown pooling {name!r}: choose {', '.join(POOLINGS)} or SCORE-NORMALIZER-WINDOW")
    if window == "local_m":  # for every sentence the first tokens
        raise unknown("window of a pooling", window, set(WINDOWS) - {"local_m"})
    config = AttentionConfig(score=score, normalizer=normalizer, window=window)
    settings = attention_settings(replace(SIZE, attention=config), Recurrent.state_size_of(SIZE))
    return AttentionPooling(build_attention(score, normalizer, window, settings), settings.query_size)


def train(
    model: Classifier, examples: Sequence[LabeledSentence], epochs: int, report: Callable[[str], None]
) -> dict[str, float]:
    """Minimize cross-entropy, in batches of similar length; the learning rate falls in the second half.

    Return the cost, as `minimize`.
    """
    by_length = sorted(examples, key=lambda example: len(example.words))
    batches = [by_length[start : start + BATCH] for start in range(0, len(by_length), BATCH)]

    def shuffled_batches() -> list[list[LabeledSentence]]:
        return [batches[number] for number in torch.randperm(len(batches)).tolist()]

    def learning_rate(remaining: float) -> float:
        return 2e-3 * min(1.0, 2 * remaining)

    return minimize(model, partial(loss_of, model), shuffled_batches, learning_rate, epochs, report, max_norm=1.0)


def loss_of(model: Classifier, examples: Sequence[LabeledSentence]) -> Float[Tensor, ""]:
    """Return the mean cross-entropy; if weights are sampled (`hard`), with the term of REINFORCE."""
    log_odds, attended = model(model.vocabulary.batch([example.words for example in examples]))
    labels = torch.tensor([example.label for example in examples])
    losses = nn.functional.cross_entropy(log_odds, labels, reduction="none")
    if attended is None or attended.sampled.log_prob is None or attended.sampled.entropy is None:
        return losses.mean()
    advantage = (losses.mean() - losses).detach()  # the reward is -loss, the baseline the batch's mean
    log_prob, entropy = attended.sampled.log_prob[:, 0], attended.sampled.entropy[:, 0]
    return (losses - advantage * log_prob - ENTROPY * entropy).mean()


def saliency(model: Classifier, ids: Ids) -> Float[Tensor, "batch length"]:
    """|e_j . d log(p / (1 - p)) / d e_j|, p the predicted class's probability, divided by its sum over the words.

    e_j is the vector of word j: gradient times input, as `nmt.evaluation.saliency`. Of the log-odds, since the gradient
    of log p is lost in rounding if p is near 1.
    """
    leaves: list[Tensor] = []

    def make_leaf(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    with torch.enable_grad(), model.encoder.embedding.register_forward_hook(make_leaf):
        log_odds, _ = model(ids)
        best, predicted = log_odds.max(dim=1)
        others = log_odds.scatter(1, predicted[:, None], -torch.inf).logsumexp(dim=1)
        (gradient,) = torch.autograd.grad((best - others).sum(), leaves)
    magnitudes = (gradient * leaves[0].detach()).sum(dim=-1).abs()
    return magnitudes / magnitudes.sum(dim=1, keepdim=True).clamp_min(torch.finfo(magnitudes.dtype).tiny)


def predict(model: Classifier, examples: Sequence[LabeledSentence], size: int = 100) -> list[Prediction]:
    """Classify sentences, `size` of similar length at once."""
    model.eval()
    predictions: dict[int, Prediction] = {}
    by_length = sorted(range(len(examples)), key=lambda number: len(examples[number].words))
    for start in range(0, len(by_length), size):
        numbers = by_length[start : start + size]
        ids = model.vocabulary.batch([examples[number].words for number in numbers])
        with torch.no_grad():
            log_odds, attended = model(ids)
        probabilities, saliencies = log_odds.double().softmax(dim=1).numpy(), saliency(model, ids).numpy()
        for row, number in enumerate(numbers):
            end = len(examples[number].words)
            weights = None if attended is None else attended.weights[row, 0, :end].numpy()
            predictions[number] = Prediction(examples[number], probabilities[row], weights, saliencies[row, :end])
    return [predictions[number] for number in range(len(examples))]
