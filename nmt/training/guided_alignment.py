"""Guided alignment: attention is taught from given links, beside the translation  (Chen et al., 2016)."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.config.schema import GuidedAlignmentConfig

# Added to a weight before its logarithm is taken: bounds the cost of a weight of exactly 0 at 13.8 nats.
EPSILON = 1e-6


def guidance_loss(
    weights: Float[Tensor, "batch target source"], alignment: Float[Tensor, "batch target source"], kind: str
) -> Float[Tensor, ""]:
    """Return how far attention is from the gold, summed over the target pieces that have any.

    With weights a_ji and gold p_ji (`Batch.alignment`, whose rows sum to 1, or to 0 where nothing is known):

        cross_entropy    -sum_ji p_ji log(a_ji + 1e-6)
        squared          sum_ji (a_ji - p_ji)^2 / 2,  over rows j that have gold

    Both are finite for weights of exactly 0. A weight that a window, or a sparse normalizer, makes 0 passes no
    gradient on: then only the weights above 0 are taught. Close to 0 the slope of sparsemax does not vanish as
    softmax's does, so that the gradient of the cross-entropy gets steep (up to 1e6): `squared` teaches it better.

    Args:
        weights: what the decoder attended to.
        alignment: what it ought to.
        kind: a key of `KINDS`.
    """
    kept = torch.promote_types(weights.dtype, torch.float32)
    loss: Tensor = KINDS[kind](weights.to(kept), alignment.to(kept))
    return loss


def cross_entropy(weights: Tensor, alignment: Tensor) -> Tensor:
    """-sum_ji p_ji log(a_ji + epsilon)."""
    return -(alignment * (weights + EPSILON).log()).sum()


def squared(weights: Tensor, alignment: Tensor) -> Tensor:
    """sum_ji (a_ji - p_ji)^2 / 2 over rows with gold."""
    known = alignment.sum(dim=-1, keepdim=True) > 0
    return ((weights - alignment) * known).square().sum() / 2


KINDS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"cross_entropy": cross_entropy, "squared": squared}


def guidance_weight(config: GuidedAlignmentConfig, epochs: float) -> float:
    """Return the weight of the guidance after some epochs, parts of them in: weight x decay^epochs."""
    return float(config.weight * config.decay**epochs)
