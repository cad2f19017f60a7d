"""What the parts of attention are made from."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nmt.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Sizes and options; each part reads those that it has a use for.

    Attributes:
        query_size, state_size: sizes of a query, and of an encoder state.
        size: inner size of additive and concat scores, of local_p's predictor, and of learned projections.
        basis, num_basis: `location`'s basis functions of the position.
        temperature: T of the normalizers, > 0: p = argmax <p, s> - T Omega(p); None for the normalizer's usual one.
        soft_share: share of the weights that `hard`, while training, does not draw but takes as softmax makes them.
        radius: D of the local windows, in tokens, >= 1.
        num_heads: how many attentions share the sizes out.
        coverage: what an additive score is told of the attention so far: `none`, `accumulated` or `fertility`.
        projection: `learned` or `identity`, of queries, keys and values, before the heads.
    """

    query_size: int
    state_size: int
    size: int
    basis: str = "canonical"
    num_basis: int = 64
    temperature: float | None = 1.0
    soft_share: float = 0.0
    radius: int = 10
    num_heads: int = 1
    coverage: str = "none"
    projection: str = "identity"

    def of_head(self) -> "Settings":
        """Return the settings of one of the heads, which know nothing of each other.

        Raises:
            UserError: the number of heads does not divide a size.
        """
        learned = self.projection == "learned"
        whole = {"query_size": self.query_size, "state_size": self.state_size, "size": self.size}
        for name, size in whole.items():
            if size % self.num_heads and not (learned and name == "query_size"):
                raise UserError(
                    f"model.attention.num_heads={self.num_heads} does not divide {WORDS[name]}, {size}: "
                    f"choose a divisor, or change the size"
                )
        query, state = (self.size, self.size) if learned else (self.query_size, self.state_size)
        heads = self.num_heads
        return replace(
            self,
            query_size=query // heads,
            state_size=state // heads,
            size=self.size // heads,
            num_heads=1,
            projection="identity",
        )


WORDS = {
    "query_size": "the size of a query (model.hidden_size)",
    "state_size": "the size of an encoder state (model.hidden_size)",
    "size": "model.attention.size (default: model.hidden_size)",
}


def at_least_fp32(tensor: Tensor) -> Tensor:
    """Return the tensor in fp32 at least: positions, distances and sorted sums do not survive half precision."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
