"""R-Drop in chunks of tokens: the divergence between two passes through dropout, and its gradient."""

from typing import final

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from nmt.fast.arena import Arena


def side_by_side(x: Shaped[Tensor, "passes_tokens *size"]) -> Shaped[Tensor, "tokens_passes *size"]:
    """Reorder the tokens of one pass and then the other so that the two of each token are neighbors."""
    return torch.stack(x.chunk(2), dim=1).flatten(0, 1)


@final
class Divergence:
    """weight x [KL(p || q) + KL(q || p)] / 2, p and q being the distributions of the two passes of each token.

    With d = log p - log q it is weight x (E_p d - E_q d) / 2. Its gradient by the logits of p is
    weight / 2 x [p - q + p (d - E_p d)], by those of q -weight / 2 x [p - q + q (d - E_q d)].
    """

    def __init__(self, arena: Arena, weight: float, rows: int, vocab: int, dtype: torch.dtype) -> None:
        """`rows` are those of a chunk: the two passes of a token are neighbors."""
        self.weight = weight
        self.gaps, self.differences, self.products = (arena.take(rows // 2, vocab, dtype=dtype) for _ in range(3))

    def compare(self, logits: Float[Tensor, "tokens_passes vocab"]) -> None:
        """Note by how much the logits differ, before they become probabilities."""
        torch.sub(logits[0::2], logits[1::2], out=self.gaps[: len(logits) // 2])

    def add_gradient(
        self,
        probabilities: Float[Tensor, "tokens_passes vocab"],
        log_normalizers: Float[Tensor, " tokens_passes"],
    ) -> Float[Tensor, ""]:
        """Add the gradient by the logits to the probabilities; return the sum of [KL(p || q) + KL(q || p)] / 2."""
        p, q = probabilities[0::2], probabilities[1::2]
        gap, difference, product = (each[: len(p)] for each in (self.gaps, self.differences, self.products))
        gap -= (log_normalizers[0::2] - log_normalizers[1::2]).to(gap.dtype)[:, None]
        by_p, by_q = (
            torch.mul(each, gap, out=product).sum(dim=1, keepdim=True, dtype=log_normalizers.dtype) for each in (p, q)
        )
        torch.sub(p, q, out=difference)
        torch.sub(gap, by_p.to(gap.dtype), out=product)
        torch.addcmul(difference, p, product, out=product)
        gap -= by_q.to(gap.dtype)
        torch.addcmul(difference, q, gap, out=difference)
        p.add_(product, alpha=self.weight / 2)
        q.sub_(difference, alpha=self.weight / 2)
        return (by_p - by_q).sum() / 2
