"""Word embeddings."""

import math
from collections.abc import Callable
from typing import NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.models.dropout import Dropout
from nmt.text.tokenizer import PAD


class Embedded(NamedTuple):
    """A vector for each token; or one for each that occurs, `places` saying which of them stands where."""

    vectors: Float[Tensor, "*shape embedding"]
    places: Int[Tensor, "*tokens"] | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> Float[Tensor, "*tokens size"]:
        """Return f(e) for each token's vector e; found once where tokens share it."""
        found = function(self.vectors)
        # Gradients of a vector that is shared add up: in the precision of the parameters.
        return found if self.places is None else nn.functional.embedding(self.places, found.to(self.vectors.dtype))

    def places_of_all(self) -> Int[Tensor, "*tokens"]:
        """Return for each token the place of its vector, counted through all axes before the last."""
        if self.places is not None:
            return self.places
        shape = self.vectors.shape[:-1]
        return torch.arange(shape.numel(), device=self.vectors.device).view(shape)


@final
class Embedding(nn.Embedding):
    """sqrt(d) E[token], E drawn from N(0, 1/d)  (Vaswani et al., 2017).

    The network reads vectors of unit variance, and learns them faster, while the table itself stays of the size
    that an output layer sharing it needs.
    """

    def __init__(self, vocab_size: int, size: int, dropout: float) -> None:
        super().__init__(vocab_size, size, padding_idx=PAD)
        self.scale = math.sqrt(size)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Int[Tensor, "*tokens"]) -> Float[Tensor, "*tokens embedding"]:
        embedded: Tensor = self.dropout(super().forward(tokens) * self.scale)
        return embedded

    def shared(self, tokens: Int[Tensor, "*tokens"]) -> Embedded:
        """As `forward`, equal tokens sharing a vector, unless dropout tells them apart.

        A batch repeats most of its words. Not on a GPU, which would have to be waited for to learn how many there are.
        """
        if tokens.device.type != "cpu" or (self.training and self.dropout.p):
            return Embedded(self(tokens))
        distinct, places = tokens.unique(return_inverse=True)
        return Embedded(self(distinct), places)
