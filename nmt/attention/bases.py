"""Basis functions of a source token's position in its sentence: phi of the `location` score."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Basis = Callable[[Tensor, int], Tensor]


def canonical(source_mask: Bool[Tensor, "batch source"], size: int) -> Float[Tensor, "batch source basis"]:
    """phi_j(s) = 1 if s = j else 0, position s from 0: an independent score for each position  (Luong et al., 2015).

    Positions from size - 1 on share the last function, so that sentences of any length have a basis.
    """
    batch, source = source_mask.shape
    positions = torch.arange(source, device=source_mask.device).clamp_max(size - 1)
    return torch.eye(size, device=source_mask.device)[positions].expand(batch, source, size)


def radial(source_mask: Bool[Tensor, "batch source"], size: int) -> Float[Tensor, "batch source basis"]:
    """phi_j(s) = exp(-(size (r_s - c_j))^2 / 2), r_s = (s + 1/2) / S, c_j = (j + 1/2) / size.

    Gaussians of the relative position r_s in a sentence of S real tokens, with evenly spaced centers and the spacing
    as standard deviation: scores stretch with the sentence.
    """
    lengths = source_mask.sum(dim=1, keepdim=True).clamp_min(1)
    positions = torch.arange(source_mask.shape[1], device=source_mask.device)
    relative = (positions + 0.5) / lengths
    centers = (torch.arange(size, device=source_mask.device) + 0.5) / size
    return (-0.5 * (size * (relative[:, :, None] - centers)).square()).exp()


BASES: dict[str, Basis] = {
    "canonical": canonical,
    "radial": radial,
}
