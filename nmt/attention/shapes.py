"""Shapes and precision of attention's tensors: `target` queries for each sentence of a batch, `source` tokens."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Query = Float[Tensor, "batch target query"]
States = Float[Tensor, "batch source state"]
Mask = Bool[Tensor, "batch source"]  # True = real token; padding only at the end of a sentence
Keys = Float[Tensor, "batch source key"]
Scores = Float[Tensor, "batch target source"]
Support = Bool[Tensor, "batch #target source"]
Taper = Float[Tensor, "batch target source"]
# What an attention with coverage accumulates: for each query, the attention its hypothesis has paid so far.
Past = Float[Tensor, "batch target source"]
# Target position, from 0: one for all queries (the hypotheses of a beam share it), or one for each.
Position = int | Int[Tensor, " #target"]


def at_least_fp32(tensor: Tensor) -> Tensor:
    """Return the tensor in at least fp32: positions, distances and sorted sums need more digits than 16 bits hold."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
