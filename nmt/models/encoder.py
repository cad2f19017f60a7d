"""Encoders: from a source sentence to the states that a decoder attends to; a new one is a line in `ENCODERS`."""

from abc import ABC, abstractmethod
from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt.config.schema import ModelConfig
from nmt.errors import UserError
from nmt.models.layers import Dropout, Embedding, SelfAttention


class EncoderOutput(NamedTuple):
    """A batch of encoded sentences."""

    states: Float[Tensor, "batch source state"]  # arbitrary on padding
    final: Float[Tensor, "batch layers final"]  # for each decoder layer to start from
    summary: Float[Tensor, "batch state"]  # the whole sentence in one vector


class Encoder(nn.Module, ABC):
    """Reads source sentences. Padding never changes a result."""

    state_size: int  # of the vectors in `EncoderOutput`
    final_size: int

    def __init__(self, config: ModelConfig, embedding: Embedding) -> None:
        super().__init__()
        self.embedding = embedding

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        """Raise UserError for settings that this encoder cannot be built from."""

    @staticmethod
    @abstractmethod
    def state_size_of(config: ModelConfig) -> int:
        """Return the `state_size` of an encoder with this configuration, without building it."""

    def __str__(self) -> str:
        return type(self).__name__

    @abstractmethod
    def forward(self, source: Int[Tensor, "batch source"], source_lengths: Int[Tensor, " batch"]) -> EncoderOutput:
        """Encode padded sentences; `source_lengths`, in tokens with the end mark, is on the CPU."""


@final
class Recurrent(Encoder):
    """h_j = [forward h_j; backward h_j]  (Bahdanau et al., 2015): GRU or LSTM layers in both directions.

    `final` is the last state of each layer's backward direction: h_1, and for an LSTM c_1 behind it. `summary` is
    [forward h_S; backward h_1] of the top layer, after dropout: the states in which each direction has read the whole
    sentence. Self-attention, if any, has changed the states, from which the summary is taken, but not `final`.
    """

    def __init__(self, config: ModelConfig, embedding: Embedding) -> None:
        super().__init__(config, embedding)
        heads, dropout, locked = config.self_attention_heads, config.dropout_rate("state"), config.locked_dropout
        self.rnn: nn.GRU | nn.LSTM = {"gru": nn.GRU, "lstm": nn.LSTM}[config.cell](
            embedding.embedding_dim,
            config.hidden_size // 2,
            config.num_layers,
            batch_first=True,
            bidirectional=True,
            dropout=dropout if config.num_layers > 1 else 0.0,  # torch warns about dropout after a single layer
        )
        self.state_size = self.state_size_of(config)
        self.final_size = self.rnn.hidden_size * (2 if config.cell == "lstm" else 1)
        self.state_dropout = Dropout(dropout, shared=locked)
        self.self_attention = SelfAttention(self.state_size, heads, dropout, locked=locked) if heads else None

    @classmethod
    def check(cls, config: ModelConfig) -> None:
        if config.hidden_size % 2:
            raise UserError(
                f"model.hidden_size={config.hidden_size} must be even: each encoder direction has half of it"
            )
        if config.self_attention_heads and config.hidden_size % config.self_attention_heads:
            raise UserError(
                f"model.self_attention_heads={config.self_attention_heads} does not divide model.hidden_size="
                f"{config.hidden_size}: choose a divisor"
            )

    @staticmethod
    def state_size_of(config: ModelConfig) -> int:
        return 2 * (config.hidden_size // 2)

    def __str__(self) -> str:
        return f"{type(self.rnn).__name__}, bidirectional"

    def forward(self, source: Int[Tensor, "batch source"], source_lengths: Int[Tensor, " batch"]) -> EncoderOutput:
        states, final = self.recur(source, source_lengths)
        states = self.state_dropout(states, axis=1)
        if self.self_attention is not None:
            states = self.self_attention(states, mask_of(source_lengths, source.shape[1]).to(states.device))
        return EncoderOutput(states, final, sentence_summary(states, source_lengths))

    def recur(
        self, source: Int[Tensor, "batch source"], source_lengths: Int[Tensor, " batch"]
    ) -> tuple[Float[Tensor, "batch source state"], Float[Tensor, "batch layers final"]]:
        """Run the recurrent layers; return the top layer's states and each layer's last backward state.

        In the precision of the parameters: under autocast to bf16 torch has cuDNN compute in fp16, in which small
        gradients vanish.
        """
        packed = pack_padded_sequence(self.embedding(source), source_lengths, batch_first=True, enforce_sorted=False)
        with torch.autocast(source.device.type, enabled=False):
            packed_states, last = self.rnn(packed)
        states, _ = pad_packed_sequence(packed_states, batch_first=True, total_length=source.shape[1])
        return states, self.last_backward(last)

    def last_backward(self, last: Tensor | tuple[Tensor, Tensor]) -> Float[Tensor, "batch layers final"]:
        """Return each layer's last backward state, given the last states that torch's layers return."""
        joined = torch.cat(last, dim=-1) if isinstance(last, tuple) else last
        return joined.unflatten(0, (self.rnn.num_layers, 2))[:, 1].transpose(0, 1)


def sentence_summary(
    states: Float[Tensor, "batch source state"], source_lengths: Int[Tensor, " batch"]
) -> Float[Tensor, "batch state"]:
    """Return [forward h_S; backward h_1], the two halves of a bidirectional layer's states."""
    forward, backward = states.chunk(2, dim=-1)
    last = (source_lengths - 1).to(states.device, non_blocking=True)[:, None, None].expand(-1, 1, forward.shape[2])
    return torch.cat((forward.gather(1, last)[:, 0], backward[:, 0]), dim=-1)


def mask_of(lengths: Int[Tensor, " batch"], size: int) -> Bool[Tensor, "batch source"]:
    """Return the mask of real tokens: True where position < length."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


ENCODERS: dict[str, type[Encoder]] = {"recurrent": Recurrent}
