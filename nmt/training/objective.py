"""What training minimizes: label-smoothed cross-entropy, in chunks, on real tokens only."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.data.batch import Batch
from nmt.models.decoder import Decoded
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
    the logits is p - (1 - eps) onehot(y) - eps / V. Logits live one chunk of rows at a time and turn into their
    gradient in place, so that memory does not grow with tokens x vocabulary.
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
        inputs, matrix = autocast(features), autocast(weight)
        objective, cross_entropy = bias.new_zeros(()), bias.new_zeros(())
        learning = any(ctx.needs_input_grad)
        by_features = torch.empty_like(features) if learning else None
        by_weight, by_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        for start in range(0, len(labels), CHUNK):
            chunk = slice(start, start + CHUNK)
            logits = (inputs[chunk] @ matrix.T).to(bias.dtype).add_(bias)
            losses = smoothed_losses(logits, labels[chunk], label_smoothing)
            objective += losses.objective
            cross_entropy += losses.cross_entropy
            if by_features is not None:
                by_logits = autocast(losses.by_logits)
                by_features[chunk] = by_logits @ matrix
                by_weight += by_logits.T @ inputs[chunk]
                by_bias += losses.by_logits.sum(dim=0)
        ctx.mark_non_differentiable(cross_entropy)
        ctx.save_for_backward(by_features, by_weight, by_bias)
        return objective, cross_entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_objective: Float[Tensor, ""], _: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients that were formed on the way forward."""
        return *(by_objective * gradient for gradient in ctx.saved_tensors), None, None


class ChunkLosses(NamedTuple):
    """Losses of some tokens, summed, and the objective's gradient by their logits."""

    objective: Tensor
    cross_entropy: Tensor
    by_logits: Tensor


def smoothed_losses(
    logits: Float[Tensor, "tokens vocab"], labels: Int[Tensor, " tokens"], label_smoothing: float
) -> ChunkLosses:
    """Return the losses of `ProjectedCrossEntropy` for a few tokens."""
    labels = labels[:, None]
    gold = logits.gather(1, labels)
    largest, mean = logits.amax(dim=1, keepdim=True), logits.mean(dim=1, keepdim=True)
    probabilities = logits.softmax(dim=1)
    log_normalizer = largest - probabilities.amax(dim=1, keepdim=True).log()
    cross_entropy = (log_normalizer - gold).sum()
    smoothing = (log_normalizer - mean).sum()
    objective = (1.0 - label_smoothing) * cross_entropy + label_smoothing * smoothing
    by_logits = probabilities.sub_(label_smoothing / logits.shape[1])
    by_logits.scatter_add_(1, labels, torch.full_like(gold, label_smoothing - 1.0))
    return ChunkLosses(objective, cross_entropy, by_logits)


def autocast(tensor: Tensor) -> Tensor:
    """Return the tensor in the type that autocast, if on, would multiply matrices in."""
    kind = tensor.device.type
    return tensor.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else tensor
