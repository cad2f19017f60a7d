"""Word embeddings."""

import math
from typing import final

from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.text.tokenizer import PAD


@final
class Embedding(nn.Embedding):
    """sqrt(d) E[token], E drawn from N(0, 1/d)  (Vaswani et al., 2017).

    The network reads vectors of unit variance and learns them faster, while the table itself stays of the size
    that an output layer sharing it needs.
    """

    def __init__(self, vocab_size: int, size: int, dropout: float) -> None:
        super().__init__(vocab_size, size, padding_idx=PAD)
        self.scale = math.sqrt(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Int[Tensor, "*tokens"]) -> Float[Tensor, "*tokens embedding"]:
        embedded: Tensor = self.dropout(super().forward(tokens) * self.scale)
        return embedded
