"""Equal words of a batch share the products of their embeddings."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.models.decoder import Decoder, WordShares
from nmt.models.layers import Embedding


class DistinctWords(NamedTuple):
    """The distinct tokens of a batch, and for each place in the batch the index of its token among them."""

    tokens: Int[Tensor, " distinct"]
    inverse_indices: Int[Tensor, "*tokens"]

    def spread(self, vectors: Float[Tensor, "distinct size"], dtype: torch.dtype) -> Float[Tensor, "*tokens size"]:
        """Return each place's vector; gradients of a vector are summed in `dtype`."""
        return nn.functional.embedding(self.inverse_indices, vectors.to(dtype))


def distinct_words(embedding: Embedding, tokens: Int[Tensor, "*tokens"]) -> DistinctWords | None:
    """Find the distinct tokens; None where sharing does not hold or does not pay.

    Dropout makes equal words differ. A GPU would have to be waited for to learn how many distinct tokens there are.
    """
    if tokens.device.type != "cpu" or embedding.is_random:
        return None
    return DistinctWords(*tokens.unique(return_inverse=True))


def read_words(decoder: Decoder, tokens: Int[Tensor, "*words"]) -> WordShares:
    """As `Decoder.read_words`, computed once for each distinct word: a batch repeats most of its words."""
    plain: Callable[[Decoder, Tensor], WordShares] = type(decoder).read_words
    words = distinct_words(decoder.embedding, tokens)
    if words is None:
        return plain(decoder, tokens)
    gates, readout = plain(decoder, words.tokens)
    dtype = decoder.embedding.weight.dtype
    return WordShares(words.spread(gates, dtype), None if readout is None else words.spread(readout, dtype))
