"""The bidirectional recurrent encoder."""

from typing import NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt.fast.layer import bidirectional, reversal_of
from nmt.models.dropout import Dropout, keep_mask
from nmt.models.embedding import Embedded, Embedding
from nmt.models.self_attention import SelfAttention


class EncoderOutput(NamedTuple):
    """States of every source position, and the backward direction's last states, one a layer."""

    states: Float[Tensor, "batch source state"]
    final: Float[Tensor, "batch layers final"]


@final
class Encoder(nn.Module):
    """h_j = [forward h_j; backward h_j]  (Bahdanau et al., 2015), any number of layers.

    Padding never changes a result.
    """

    def __init__(
        self,
        embedding: Embedding,
        *,
        cell: str,
        hidden_size: int,
        num_layers: int,
        state_dropout: float,
        self_attention_heads: int = 0,
        fast: bool = True,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.num_layers = num_layers
        self.fast = fast
        kind = {"gru": nn.GRU, "lstm": nn.LSTM}[cell]
        between = state_dropout if num_layers > 1 else 0.0  # torch warns about dropout after a single layer
        self.rnn = kind(
            embedding.embedding_dim, hidden_size // 2, num_layers, batch_first=True, bidirectional=True, dropout=between
        )
        self.state_dropout = Dropout(state_dropout)
        size = 2 * (hidden_size // 2)
        self.self_attention = SelfAttention(size, self_attention_heads, state_dropout) if self_attention_heads else None

    @property
    def final_size(self) -> int:
        """Size of a layer's final backward state: h, and for an LSTM c behind it."""
        parts = 2 if isinstance(self.rnn, nn.LSTM) else 1
        return parts * self.rnn.hidden_size

    def forward(self, source: Int[Tensor, "batch source"], source_lengths: Int[Tensor, " batch"]) -> EncoderOutput:
        """Encode padded sentences; `source_lengths` is on the CPU."""
        if self.fast and source.device.type == "cpu":  # elsewhere torch's own layers are the quickest
            states, final = self.fast_path(source, source_lengths)
        else:
            states, final = self.packed(source, source_lengths)
        states = self.state_dropout(states)
        if self.self_attention is not None:
            mask = torch.arange(source.shape[1]) < source_lengths[:, None]
            states = self.self_attention(states, mask.to(states.device))
        return EncoderOutput(states, final)

    def packed(
        self, source: Int[Tensor, "batch source"], source_lengths: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch source state"], Float[Tensor, "batch layers final"]]:
        """Run torch's layers: what the fast path must equal on real tokens. As for precision, see `parallel.fused`."""
        packed = pack_padded_sequence(self.embedding(source), source_lengths, batch_first=True, enforce_sorted=False)
        with torch.autocast(source.device.type, enabled=False):
            packed_states, last = self.rnn(packed)
        states, _ = pad_packed_sequence(packed_states, batch_first=True, total_length=source.shape[1])
        last = torch.cat(last, dim=-1) if isinstance(last, tuple) else last  # [layers * directions, batch, final]
        backward = last.view(self.num_layers, 2, source.shape[0], self.final_size)[:, 1]
        return states, backward.transpose(0, 1)

    def fast_path(
        self, source: Int[Tensor, "batch source"], source_lengths: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch source state"], Float[Tensor, "batch layers final"]]:
        """As `packed`, with the derivative of `nmt.fast`; states on padding are arbitrary."""
        steps = source.shape[1]
        reversal = reversal_of(source_lengths, steps)
        inputs, finals = self.embedding.shared(source.t()), []
        for layer in range(self.num_layers):
            if layer and self.rnn.dropout and self.training:
                inputs = Embedded(inputs.vectors * keep_mask(inputs.vectors, self.rnn.dropout))
            states, final = bidirectional(self.rnn, layer, inputs, reversal)
            inputs = Embedded(states)
            finals.append(final)
        return states.transpose(0, 1).contiguous(), torch.stack(finals, dim=1)
