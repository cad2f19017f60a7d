"""The objective in chunks of tokens, its gradient formed on the way forward."""

import math
from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.data.batch import Batch
from nmt.fast.consistency import Divergence, side_by_side
from nmt.fast.kernels import add_grad_weight, affine, pad_rows, padded_size, to_compute_dtype
from nmt.models.decoder import Decoded
from nmt.models.seq2seq import Loss, Seq2Seq

CHUNK = 512  # rows of logits alive at a time, about: few enough for a CPU's cache, enough for its products


def token_loss(
    model: Seq2Seq, decoded: Decoded, batch: Batch, *, label_smoothing: float, consistency: float = 0.0
) -> Loss:
    """As the readable objective: summed over the real tokens of a batch, in nats."""
    # As features[mask], whose gradient torch sorts first: that takes four times as long.
    features = decoded.features.flatten(0, 1).index_select(0, batch.target_mask.flatten().nonzero().squeeze(1))
    labels = batch.target_out[batch.target_mask]
    if consistency:
        features, labels = side_by_side(features), side_by_side(labels)
    output = model.output
    arguments = (features, output.weight, output.bias, labels, label_smoothing, torch.is_grad_enabled(), consistency)
    objective, cross_entropies, divergence = ProjectedCrossEntropy.apply(*arguments)  # type: ignore[no-untyped-call]
    if not consistency:
        return Loss(objective, cross_entropies)
    return Loss(objective / 2, cross_entropies.view(-1, 2).mean(dim=1), divergence)


@final
class ProjectedCrossEntropy(torch.autograd.Function):
    """Output layer and label-smoothed cross-entropy in one, the gradient formed on the way forward.

    objective = -sum_i [(1 - eps) log p(y_i) + eps / V sum_v log p(v)]  (Szegedy et al., 2016), whose gradient by
    the logits is p - (1 - eps) onehot(y) - eps / V. Only one chunk of logits exists at a time, and it is
    read as few times as possible. The smoothing term's gradients are linear in the features, so they are computed
    from the mean row of the weights, as initial values. With `consistency` the tokens are those of two passes,
    side by side, and their weighted divergence is added.
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Float[Tensor, "tokens feature"],
        weight: Float[Tensor, "vocab feature"],
        bias: Float[Tensor, " vocab"],
        labels: Int[Tensor, " tokens"],
        label_smoothing: float,
        differentiate: bool,
        consistency: float = 0.0,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, " tokens"], Float[Tensor, ""]]:
        """Return (objective, summed over tokens; cross-entropy of each; sum of the divergences, not weighted)."""
        differentiate = differentiate and any(ctx.needs_input_grad)
        inputs, matrix, offset = to_compute_dtype(features), to_compute_dtype(weight), to_compute_dtype(bias)
        log_normalizers, golds = bias.new_empty(2, len(labels))
        per_word, mean_row = label_smoothing / len(bias), weight.mean(dim=0)
        feature_sum = features.sum(dim=0, dtype=weight.dtype)
        size = padded_size(chunk_size(len(labels)), inputs)
        memory = matrix.new_empty(size, len(bias))
        grad_features = (-label_smoothing * mean_row).repeat(len(features), 1)
        grad_weight = None
        grad_bias = torch.full_like(bias, -per_word * len(labels))
        divergence = Divergence(consistency, memory) if consistency else None
        divergence_sum = bias.new_zeros(()) if divergence is None else divergence.total
        for start in range(0, max(1, len(labels)), size):  # one chunk at least, so that there is a gradient
            chunk = slice(start, start + size)
            rows, real = pad_rows(inputs[chunk]), len(labels[chunk])
            logits = affine(rows, matrix, offset, out=memory[: len(rows)])
            log_normalizers[chunk], golds[chunk] = to_residuals_(
                logits[:real], labels[chunk], 1.0 - label_smoothing, divergence
            )
            if differentiate:
                residual = logits
                residual[real:] = 0.0
                grad_features[chunk] += affine(residual, matrix.t())[:real]
                grad_weight = add_grad_weight(grad_weight, residual, rows)
                grad_bias += residual.sum(dim=0)
                del residual
            del logits  # before the next chunk's are made
        mean_logits = feature_sum @ mean_row + len(labels) * bias.mean()  # the mean over the vocabulary, summed
        ctx.gradients = grad_features, grad_weight, grad_bias, -per_word * feature_sum
        cross_entropies = log_normalizers - golds
        ctx.mark_non_differentiable(cross_entropies, divergence_sum)
        objective = (log_normalizers - (1.0 - label_smoothing) * golds).sum() - label_smoothing * mean_logits
        return objective + consistency * divergence_sum, cross_entropies, divergence_sum

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_objective: Float[Tensor, ""], *_: Tensor | None) -> tuple[Tensor | None, ...]:
        """Scale the gradients that were formed on the way forward, where they are."""
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise RuntimeError("the loss can only be differentiated once")
        grad_features, grad_weight, grad_bias, grad_row = gradients
        # One pass over this large matrix scales it, adds the row that is the smoothing term, and stores it by rows.
        memory = grad_weight if grad_weight.is_contiguous() else grad_weight.new_empty(grad_weight.shape)
        torch.add(grad_row * grad_objective, grad_weight, alpha=grad_objective.item(), out=memory)
        return grad_features.mul_(grad_objective), memory, grad_bias.mul_(grad_objective), None, None, None, None


def chunk_size(tokens: int) -> int:
    """Return the number of rows in a chunk: about `CHUNK`, chosen so that the last chunk is not a small remainder.

    Even a small chunk reads the whole output layer and its gradient. The size is even, so that the two passes of a
    token fall into the same chunk.
    """
    chunks = max(1, round(tokens / CHUNK))
    return max(2, 2 * math.ceil(tokens / chunks / 2))


def to_residuals_(
    logits: Float[Tensor, "tokens vocab"],
    labels: Int[Tensor, " tokens"],
    confidence: float,
    divergence: Divergence | None,
) -> tuple[Float[Tensor, " tokens"], Float[Tensor, " tokens"]]:
    """Replace logits by the residuals p - confidence x onehot(label), in place; return log Z and the labels' logits.

    With a divergence between two passes, its weighted gradient is added to the residuals.
    """
    if divergence is not None:
        divergence.compare(logits)
    label_places = torch.arange(len(labels), device=labels.device), labels
    exact = torch.promote_types(logits.dtype, torch.float32)
    gold, largest = logits[label_places].to(exact), logits.amax(dim=1).to(exact)
    probabilities = torch.softmax(logits, dim=1, out=logits)
    rounded_gold = probabilities[label_places]
    # By way of the likeliest word, whose probability cannot underflow, as the reference word's can.
    log_gold = gold - largest + probabilities.amax(dim=1).to(exact).log()
    if logits.dtype != exact:  # 16 bits have few digits near 1, but many of the sum of the other words
        probabilities[label_places] = 0.0
        log_gold = torch.where(rounded_gold > 0.5, torch.log1p(-probabilities.sum(dim=1).to(exact)), log_gold)
        probabilities[label_places] = rounded_gold
    log_normalizer = gold - log_gold
    if divergence is not None:
        divergence.add_gradient(probabilities, log_normalizer)
    added = probabilities[label_places].to(exact) - rounded_gold
    # In 16 bits a probability near 1 is 1: its difference from the confidence would be lost.
    probabilities[label_places] = (added + (log_gold.exp() - confidence)).to(logits.dtype)
    return log_normalizer, gold
