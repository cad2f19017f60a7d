"""The bidirectional recurrent encoder."""

from typing import NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt.models.embedding import Embedding


class Encoded(NamedTuple):
    """States of every source position, and the backward direction's last states, one a layer."""

    states: Float[Tensor, "batch source state"]
    final: Float[Tensor, "batch layers final"]


@final
class Encoder(nn.Module):
    """h_j = [forward h_j; backward h_j]  (Bahdanau et al., 2015), any number of layers.

    Sentences are packed, so padding is never read and never changes a result.
    """

    def __init__(
        self,
        embedding: Embedding,
        *,
        cell: str,
        hidden_size: int,
        num_layers: int,
        state_dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.num_layers = num_layers
        kind = {"gru": nn.GRU, "lstm": nn.LSTM}[cell]
        between = state_dropout if num_layers > 1 else 0.0  # torch warns about dropout after a single layer
        self.rnn = kind(
            embedding.embedding_dim, hidden_size // 2, num_layers, batch_first=True, bidirectional=True, dropout=between
        )
        self.state_dropout = nn.Dropout(state_dropout)

    @property
    def final_size(self) -> int:
        """Size of a layer's final backward state: h, and for an LSTM c behind it."""
        parts = 2 if isinstance(self.rnn, nn.LSTM) else 1
        return parts * self.rnn.hidden_size

    def forward(self, source: Int[Tensor, "batch source"], source_lengths: Int[Tensor, " batch"]) -> Encoded:
        """Encode padded sentences; `source_lengths` is on the CPU."""
        embedded = self.embedding(source)
        packed = pack_padded_sequence(embedded, source_lengths, batch_first=True, enforce_sorted=False)
        packed_states, last = self.rnn(packed)
        states, _ = pad_packed_sequence(packed_states, batch_first=True, total_length=source.shape[1])
        last = torch.cat(last, dim=-1) if isinstance(last, tuple) else last  # [layers * directions, batch, final]
        backward = last.view(self.num_layers, 2, source.shape[0], self.final_size)[:, 1]
        return Encoded(self.state_dropout(states), backward.transpose(0, 1))
