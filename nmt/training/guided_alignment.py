"""Guided alignment: a loss that teaches attention from given links  (Chen et al., 2016)."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from nmt.attention.shapes import at_least_fp32
from nmt.config.schema import GuidedAlignmentConfig

# Added to a weight before its logarithm is taken: a weight of exactly 0 costs 13.8 nats.
EPSILON = 1e-6


def guided_alignment_loss(
    weights: Float[Tensor, "batch target source"], alignment: Float[Tensor, "batch target source"], kind: str
) -> Float[Tensor, ""]:
    """Return the distance of attention from gold links, summed over the target positions that have any.

    With weights a_ji and gold p_ji (rows sum to 1, or to 0 where no link is known):

        cross_entropy    -sum_ji p_ji log(a_ji + 1e-6)
        squared          sum_ji (a_ji - p_ji)^2 / 2,  over rows j that have gold

    Both are finite for weights of exactly 0. A weight that a window, or a sparse normalizer, makes 0 has no gradient,
    so only weights above 0 are taught. Close to 0 the slope of sparsemax does not vanish as softmax's does, so that
    the gradient of the cross-entropy gets steep (up to 1e6): `squared` suits it better.
    """
    return KINDS[kind](at_least_fp32(weights), alignment)


def cross_entropy(weights: Tensor, alignment: Tensor) -> Tensor:
    return -(alignment * (weights + EPSILON).log()).sum()


def squared(weights: Tensor, alignment: Tensor) -> Tensor:
    is_linked = alignment.sum(dim=-1, keepdim=True) > 0
    return ((weights - alignment) * is_linked).square().sum() / 2


KINDS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"cross_entropy": cross_entropy, "squared": squared}


def guided_alignment_weight(config: GuidedAlignmentConfig, epochs: float) -> float:
    """Return weight x decay^epochs, the factor of the loss after `epochs` (fractional) epochs."""
    return float(config.weight * config.decay**epochs)
