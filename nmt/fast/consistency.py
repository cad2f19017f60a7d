"""R-Drop in chunks of tokens: the divergence between two passes through dropout, and its gradient."""

from typing import final

import torch
from jaxtyping import Float, Shaped
from torch import Tensor


def side_by_side(x: Shaped[Tensor, "passes_tokens *size"]) -> Shaped[Tensor, "tokens_passes *size"]:
    """Reorder the tokens of one pass and then the other so that the two of each token are neighbors."""
    return torch.stack(x.chunk(2), dim=1).flatten(0, 1)


@final
class Divergence:
    """D = [KL(p || q) + KL(q || p)] / 2, p and q being the distributions of the two passes of each token.

    With d = log p - log q it is (E_p d - E_q d) / 2. Its gradient with respect to the logits of p is
    [p - q + p (d - E_p d)] / 2, with respect to those of q -[p - q + q (d - E_q d)] / 2.

    Attributes:
        total: the sum of D over the tokens so far.
    """

    def __init__(self, weight: float, logits: Float[Tensor, "tokens_passes vocab"]) -> None:
        """`weight` is that of D in the objective; `logits` is memory for those of a chunk."""
        self.weight = weight
        self.total = logits.new_zeros((), dtype=torch.promote_types(logits.dtype, torch.float32))
        self.gaps, self.differences, self.products = (torch.empty_like(logits[0::2]) for _ in range(3))

    def compare(self, logits: Float[Tensor, "tokens_passes vocab"]) -> None:
        """Note by how much the logits differ, before they become probabilities."""
        torch.sub(logits[0::2], logits[1::2], out=self.gaps[: len(logits) // 2])

    def add_gradient(
        self, probabilities: Float[Tensor, "tokens_passes vocab"], log_normalizers: Float[Tensor, " tokens_passes"]
    ) -> None:
        """Add weight x the gradient of D with respect to the logits to the probabilities, and D to the total."""
        p, q = probabilities[0::2], probabilities[1::2]
        gap, difference, product = (each[: len(p)] for each in (self.gaps, self.differences, self.products))
        gap -= (log_normalizers[0::2] - log_normalizers[1::2]).to(gap.dtype)[:, None]
        mean_p, mean_q = (
            torch.mul(each, gap, out=product).sum(dim=1, keepdim=True, dtype=log_normalizers.dtype) for each in (p, q)
        )
        torch.sub(p, q, out=difference)
        torch.sub(gap, mean_p.to(gap.dtype), out=product)
        torch.addcmul(difference, p, product, out=product)
        gap -= mean_q.to(gap.dtype)
        torch.addcmul(difference, q, gap, out=difference)
        p.add_(product, alpha=self.weight / 2)
        q.sub_(difference, alpha=self.weight / 2)
        self.total += (mean_p - mean_q).sum() / 2
