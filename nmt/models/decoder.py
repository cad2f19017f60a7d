"""Attention decoders: the order of attending and updating is what tells them apart.

Each offers `advance`, one step of the recurrence, and shares what comes before it (embeddings, input gates)
and after it (readout), which is computed for all steps at once. Tensors have a middle axis: target positions
while training, hypotheses of a sentence while searching.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.attention.attention import Attention, Memory
from nmt.models.cells import Cell
from nmt.models.embedding import Embedding
from nmt.models.readout import Readout
from nmt.models.recurrence import unrolled


class DecoderState(NamedTuple):
    """What a step hands to the next: the state of each layer, and the vector that is fed back (or None)."""

    layers: tuple[Float[Tensor, "batch beam state"], ...]
    feedback: Float[Tensor, "batch beam feedback"] | None
    position: int

    def select(self, beams: Int[Tensor, "batch k"]) -> "DecoderState":
        """Return the states of `beams`, k hypotheses of each sentence."""
        return self._map(lambda x: x.gather(1, beams[:, :, None].expand(-1, -1, x.shape[2])))

    def keep(self, sentences: Int[Tensor, " kept"]) -> "DecoderState":
        """Return the states of some of the sentences."""
        return self._map(lambda x: x[sentences])

    def _map(self, function: Callable[[Tensor], Tensor]) -> "DecoderState":
        feedback = None if self.feedback is None else function(self.feedback)
        return DecoderState(tuple(function(layer) for layer in self.layers), feedback, self.position)


class Emission(NamedTuple):
    """What a step emits for the readout."""

    hidden: Float[Tensor, "batch target hidden"]
    context: Float[Tensor, "batch target context"]
    weights: Float[Tensor, "batch target source"]


class Decoded(NamedTuple):
    """The decoder's answer: inputs of the output layer, and attention weights, for each target position."""

    features: Float[Tensor, "batch target feature"]
    weights: Float[Tensor, "batch target source"]


@final
class Stack(nn.Module):
    """Layers of recurrent cells, one above the other; the first is given its gates, the others their input."""

    def __init__(self, first: Cell, upper: list[Cell], dropout: float) -> None:
        super().__init__()
        self.first = first
        self.upper = nn.ModuleList(upper)
        self.dropout = nn.Dropout(dropout)

    def forward(self, gates: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Update every layer; `gates` is the input's share of the first layer's gates."""
        new: list[Tensor] = [self.first(gates, states[0])]
        for cell, state in zip(self.upper, states[1:], strict=True):
            assert isinstance(cell, Cell)
            new.append(cell(cell.inputs(self.dropout(cell.hidden(new[-1]))), state))
        return tuple(new)

    def top(self, states: tuple[Tensor, ...]) -> Tensor:
        """Return the hidden vector of the topmost layer."""
        return self.first.hidden(states[-1])


class Decoder(nn.Module, ABC):
    """A recurrent decoder with attention."""

    def __init__(
        self,
        embedding: Embedding,
        bridge: nn.Module,
        stack: Stack,
        attention: Attention,
        readout: Readout,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.bridge = bridge
        self.stack = stack
        self.attention = attention
        self.readout = readout

    def start(self, final: Float[Tensor, "batch layers final"]) -> DecoderState:
        """s_0 = tanh(W h_1), h_1 the last state of the backward encoder, layer by layer  (Bahdanau et al., 2015)."""
        # States stay in the parameters' precision under autocast: small updates of a long recurrence would be lost.
        layers = self.bridge(final).to(self.embedding.weight.dtype)[:, None].unbind(dim=2)
        return DecoderState(layers, self.first_feedback(layers[0]), 0)

    def first_feedback(self, state: Float[Tensor, "batch 1 state"]) -> Tensor | None:
        """Return the vector fed to the first step; most decoders feed nothing back."""
        return None

    def input_gates(self, embedded: Float[Tensor, "batch target embedding"]) -> Float[Tensor, "batch target gates"]:
        """Return the embedded words' share of the gates of the cell that reads them."""
        return self.stack.first.inputs(embedded)

    @abstractmethod
    def advance(self, gates: Tensor, memory: Memory, state: DecoderState) -> tuple[DecoderState, Emission]:
        """Do one step of the recurrence, given the embedded word's share of the gates."""

    def forward(self, target_in: Int[Tensor, "batch target"], memory: Memory, state: DecoderState) -> Decoded:
        """Decode whole targets, the right words fed in (teacher forcing)."""
        embedded = self.embedding(target_in)
        emissions = []
        with unrolled(self):
            for gates in self.input_gates(embedded).split(1, dim=1):
                state, emission = self.advance(gates, memory, state)
                emissions.append(emission)
        hidden, context, weights = (torch.cat(parts, dim=1) for parts in zip(*emissions, strict=True))
        return Decoded(self.readout(hidden, context, embedded), weights)

    def step(
        self, tokens: Int[Tensor, "batch beam"], memory: Memory, state: DecoderState
    ) -> tuple[Decoded, DecoderState]:
        """Decode one more token of every hypothesis."""
        embedded = self.embedding(tokens)
        state, emission = self.advance(self.input_gates(embedded), memory, state)
        return Decoded(self.readout(emission.hidden, emission.context, embedded), emission.weights), state


@final
class Bahdanau(Decoder):
    """c_i = attend(s_{i-1}), s_i = f(s_{i-1}, y_{i-1}, c_i): attend, then update  (Bahdanau et al., 2015)."""

    def __init__(self, *args: object, context: nn.Linear) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.context = context

    def advance(self, gates: Tensor, memory: Memory, state: DecoderState) -> tuple[DecoderState, Emission]:
        attended = self.attention(self.stack.top(state.layers), memory, state.position)
        layers = self.stack(gates + self.context(attended.context), state.layers)
        emission = Emission(self.stack.top(layers), attended.context, attended.weights)
        return DecoderState(layers, None, state.position + 1), emission


@final
class Conditional(Decoder):
    """s'_i = f(s_{i-1}, y_{i-1}), c_i = attend(s'_i), s_i = g(s'_i, c_i): update, attend, update.

    The conditional GRU of Nematus (Sennrich et al., 2017), with either cell; g is the first layer of the stack.
    """

    def __init__(self, *args: object, proposal: Cell) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.proposal = proposal

    def input_gates(self, embedded: Float[Tensor, "batch target embedding"]) -> Float[Tensor, "batch target gates"]:
        return self.proposal.inputs(embedded)

    def advance(self, gates: Tensor, memory: Memory, state: DecoderState) -> tuple[DecoderState, Emission]:
        proposed = self.proposal(gates, state.layers[0])
        attended = self.attention(self.proposal.hidden(proposed), memory, state.position)
        layers = self.stack(self.stack.first.inputs(attended.context), (proposed, *state.layers[1:]))
        emission = Emission(self.stack.top(layers), attended.context, attended.weights)
        return DecoderState(layers, None, state.position + 1), emission


@final
class Luong(Decoder):
    """s_i = f(s_{i-1}, [y_{i-1}; h~_{i-1}]), c_i = attend(s_i), h~_i = tanh(W [c_i; s_i])  (Luong et al., 2015).

    The attentional vector h~ is the readout, and with input feeding the next step's input.
    """

    def __init__(self, *args: object, attentional: nn.Linear, feedback: nn.Linear | None) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.attentional = attentional
        self.feedback = feedback

    def first_feedback(self, state: Float[Tensor, "batch 1 state"]) -> Tensor | None:
        return None if self.feedback is None else state.new_zeros(*state.shape[:2], self.feedback.in_features)

    def advance(self, gates: Tensor, memory: Memory, state: DecoderState) -> tuple[DecoderState, Emission]:
        if self.feedback is not None:
            gates = gates + self.feedback(state.feedback)
        layers = self.stack(gates, state.layers)
        attended = self.attention(self.stack.top(layers), memory, state.position)
        joined = torch.cat((attended.context, self.stack.top(layers)), dim=-1)
        attentional = self.attentional(joined).tanh()
        feedback = None if self.feedback is None else attentional
        emission = Emission(attentional, attended.context, attended.weights)
        return DecoderState(layers, feedback, state.position + 1), emission
