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
from nmt.models.encoder import EncoderOutput, Recurrent
from nmt.models.layers import Embedding
from nmt.models.sizes import attention_settings
from nmt.text.vocabulary import PAD
from studies.learning import BATCH, Ids, Vocabulary, minimize
from studies.reading import Example, Reading

POOLINGS = ("last", "mean")  # besides SCORE-NORMALIZER-WINDOW
SIZE = ModelConfig(embedding_size=64, hidden_size=128, dropout=0.1)
MAX_WORDS = 20_000  # of the vocabulary
ENTROPY = 0.01  # weight of the entropy of weights that are sampled


class Mean(nn.Module):
    """The mean of the states: attention with uniform weights."""

    def forward(self, states: Float[Tensor, "batch source state"], mask: Bool[Tensor, "batch source"]) -> Attended:
        weights = (mask / mask.sum(dim=1, keepdim=True)).to(states.dtype)[:, None]
        return Attended(weights @ states, weights, torch.zeros_like(weights))


class Classifier(nn.Module):
    """log-odds of the classes = W c + b, c the last states of both directions, their mean, or attention's context.

    Raises:
        UserError: the pooling does not exist.
    """

    def __init__(self, vocabulary: Vocabulary, classes: int, pooling: str) -> None:
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
        return Mean() if name == "mean" else None
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
    model: Classifier, examples: Sequence[Example], epochs: int, report: Callable[[str], None]
) -> dict[str, float]:
    """Minimize cross-entropy, in batches of similar length; the rate falls in the second half. Return what it cost."""
    ordered = sorted(examples, key=lambda each: len(each.words))
    batches = [ordered[start : start + BATCH] for start in range(0, len(ordered), BATCH)]

    def shuffled() -> list[list[Example]]:
        return [batches[number] for number in torch.randperm(len(batches)).tolist()]

    def rate(left: float) -> float:
        return 2e-3 * min(1.0, 2 * left)

    return minimize(model, partial(loss_of, model), shuffled, rate, epochs, report, max_norm=1.0)


def loss_of(model: Classifier, examples: Sequence[Example]) -> Float[Tensor, ""]:
    """Return the mean cross-entropy; where weights are sampled (`hard`), with the term of REINFORCE."""
    scores, attended = model(model.vocabulary.batch([example.words for example in examples]))
    losses = nn.functional.cross_entropy(scores, torch.tensor([each.label for each in examples]), reduction="none")
    if attended is None or attended.sampled.log_prob is None or attended.sampled.entropy is None:
        return losses.mean()
    advantage = (losses.mean() - losses).detach()  # the reward is -loss, the baseline the batch's mean
    chosen, entropy = attended.sampled.log_prob[:, 0], attended.sampled.entropy[:, 0]
    return (losses - advantage * chosen - ENTROPY * entropy).mean()


def saliency(model: Classifier, ids: Ids) -> Float[Tensor, "batch length"]:
    """|e_j . d log(p / (1 - p)) / d e_j|, p the predicted class's probability, divided by its sum over the words.

    e_j is the vector of word j: gradient times input, as `nmt.evaluation.saliency`. Of the log-odds, since the gradient
    of log p is lost in rounding where p is near 1.
    """
    leaves: list[Tensor] = []

    def make_leaf(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    with torch.enable_grad(), model.encoder.embedding.register_forward_hook(make_leaf):
        scores, _ = model(ids)
        best, predicted = scores.max(dim=1)
        others = scores.scatter(1, predicted[:, None], float("-inf")).logsumexp(dim=1)
        (gradient,) = torch.autograd.grad((best - others).sum(), leaves)
    magnitudes = (gradient * leaves[0].detach()).sum(dim=-1).abs()
    return magnitudes / magnitudes.sum(dim=1, keepdim=True).clamp_min(torch.finfo(magnitudes.dtype).tiny)


def read(model: Classifier, examples: Sequence[Example], size: int = 100) -> list[Reading]:
    """Classify sentences, `size` of similar length at once."""
    model.eval()
    readings: dict[int, Reading] = {}
    order = sorted(range(len(examples)), key=lambda number: len(examples[number].words))
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        ids = model.vocabulary.batch([examples[number].words for number in chosen])
        with torch.no_grad():
            scores, attended = model(ids)
        probabilities, important = scores.double().softmax(dim=1).numpy(), saliency(model, ids).numpy()
        for row, number in enumerate(chosen):
            end = len(examples[number].words)
            weights = None if attended is None else attended.weights[row, 0, :end].numpy()
            readings[number] = Reading(examples[number], probabilities[row], weights, important[row, :end])
    return [readings[number] for number in range(len(examples))]
