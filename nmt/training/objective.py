"""What training minimizes: label-smoothed cross-entropy, in chunks, on real tokens only."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.data.batch import Batch
from nmt.models.decoder import Decoded
from nmt.models.recurrence import autocast
from nmt.models.seq2seq import Seq2Seq

CHUNK = 256  # rows of logits alive at a time: small enough to stay in a CPU's cache, large enough for its products


class Loss(NamedTuple):
    """Sums over the real target tokens of a batch, in nats; only the objective has a gradient."""

    objective: Float[Tensor, ""]
    cross_entropy: Float[Tensor, ""]


def token_loss(model: Seq2Seq, decoded: Decoded, batch: Batch, *, label_smoothing: float) -> Loss:
    """Project the features of real tokens on the vocabulary and return their smoothed cross-entropy."""
    features = decoded.features[batch.target_mask]
    labels = batch.target_out[batch.target_mask]
    output = model.output
    arguments = (features, output.weight, output.bias, labels, label_smoothing)
    return Loss(*ProjectedCrossEntropy.apply(*arguments))  # type: ignore[no-untyped-call]


class ProjectedCrossEntropy(torch.autograd.Function):
    """Output layer and label-smoothed cross-entropy in one, the gradient formed on the way forward.

    objective = -sum_i [(1 - eps) log p(y_i) + eps / V sum_v log p(v)]  (Szegedy et al., 2016), whose gradient by
    the logits is p - (1 - eps) onehot(y) - eps / V. Logits live one chunk of rows at a time and are passed over as
    seldom as can be: what the smoothing adds is linear in the features, so it is formed outside the chunks, from
    the mean row of the weights.
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Float[Tensor, "tokens feature"],
        weight: Float[Tensor, "vocab feature"],
        bias: Float[Tensor, " vocab"],
        labels: Int[Tensor, " tokens"],
        label_smoothing: float,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Return (objective, cross-entropy), both summed over tokens."""
        inputs, matrix, offset = autocast(features), autocast(weight), autocast(bias)
        log_normalizers, golds = bias.new_zeros(()), bias.new_zeros(())
        by_features, by_weight, by_bias = (torch.zeros_like(each) for each in (features, weight, bias))
        for start in range(0, len(labels), CHUNK):
            chunk = slice(start, start + CHUNK)
            logits = torch.nn.functional.linear(inputs[chunk], matrix, offset)
            log_normalizer, gold, residual = score(logits, labels[chunk], 1.0 - label_smoothing, bias.dtype)
            log_normalizers += log_normalizer
            golds += gold
            if any(ctx.needs_input_grad):
                by_features[chunk] = residual @ matrix
                by_weight += residual.T @ inputs[chunk]
                by_bias += residual.sum(dim=0)
        share, row, total = label_smoothing / len(bias), weight.mean(dim=0), features.sum(dim=0)
        means = total @ row + len(labels) * bias.mean()
        ctx.save_for_backward(
            by_features.sub_(label_smoothing * row),
            by_weight.sub_(share * total),
            by_bias.sub_(share * len(labels)),
        )
        cross_entropy = log_normalizers - golds
        ctx.mark_non_differentiable(cross_entropy)
        return log_normalizers - (1.0 - label_smoothing) * golds - label_smoothing * means, cross_entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_objective: Float[Tensor, ""], _: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients that were formed on the way forward."""
        return *(by_objective * gradient for gradient in ctx.saved_tensors), None, None


class Scored(NamedTuple):
    """Sums over some tokens, and the residual p - confidence x onehot(label) of each."""

    log_normalizer: Float[Tensor, ""]
    gold: Float[Tensor, ""]
    residual: Float[Tensor, "tokens vocab"]


def score(
    logits: Float[Tensor, "tokens vocab"], labels: Int[Tensor, " tokens"], confidence: float, dtype: torch.dtype
) -> Scored:
    """Return sum_i log Z_i, sum_i logit(y_i), both summed in `dtype`, and the residuals."""
    labels = labels[:, None]
    gold = logits.gather(1, labels)
    probabilities = logits.softmax(dim=1)
    # log Z from the likeliest word, whose probability cannot underflow as that of the right word can.
    log_normalizer = logits.amax(dim=1).to(dtype) - probabilities.amax(dim=1).to(dtype).log()
    residual = probabilities.scatter_add_(1, labels, torch.full_like(gold, -confidence))
    return Scored(log_normalizer.sum(), gold.to(dtype).sum(), residual)
