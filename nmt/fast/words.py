"""Equal words of a batch share the products of their embeddings."""

from jaxtyping import Int
from torch import Tensor, nn

from nmt.models.decoder import Decoder, WordInputs
from nmt.models.layers import Embedding


def distinct_words(
    embedding: Embedding, tokens: Int[Tensor, "*tokens"]
) -> tuple[Int[Tensor, " distinct"], Int[Tensor, "*tokens"]] | None:
    """Return the distinct tokens, and for each place the index of its token; None if sharing is wrong, or slow.

    Dropout makes equal words differ. On a GPU, counting the distinct tokens would force a synchronization.
    """
    if tokens.device.type != "cpu" or embedding.is_random:
        return None
    return tokens.unique(return_inverse=True)


def read_words(decoder: Decoder, tokens: Int[Tensor, "*words"]) -> WordInputs:
    """As `Decoder.read_words`, computed once for each distinct word: a batch repeats most of its words."""
    read = type(decoder).read_words
    if (words := distinct_words(decoder.embedding, tokens)) is None:
        return read(decoder, tokens)
    distinct, indices = words
    gates, readout = read(decoder, distinct)

    def to_all_places(vectors: Tensor) -> Tensor:
        # The gradients of a word's places are summed in the type of the table.
        return nn.functional.embedding(indices, vectors.to(decoder.embedding.weight.dtype))

    return WordInputs(to_all_places(gates), None if readout is None else to_all_places(readout))
