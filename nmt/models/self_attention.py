"""Self-attention on top of the recurrent encoder."""

from typing import final

from jaxtyping import Bool, Float
from torch import Tensor, nn


@final
class SelfAttention(nn.Module):
    """h + W [heads of softmax(q k / sqrt(d)) v] of LayerNorm(h)  (Vaswani et al., 2017), by torch's own kernel."""

    def __init__(self, size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.attention = nn.MultiheadAttention(size, num_heads, batch_first=True)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, states: Float[Tensor, "batch source state"], source_mask: Bool[Tensor, "batch source"]
    ) -> Float[Tensor, "batch source state"]:
        """Let every state look at the others of its sentence."""
        normed = self.norm(states)
        attended, _ = self.attention(normed, normed, normed, key_padding_mask=~source_mask, need_weights=False)
        mixed: Tensor = states + self.dropout(attended)
        return mixed
