"""Attention decoders, which differ in the order of attending and updating.

To add one, write a class with one step of its recurrence and add a line to `DECODERS`. Everything before the step
(embeddings, input gates) and after it (readout) is shared by all decoders and computed for all steps at once. The
middle axis of tensors is target positions in training, and hypotheses of a sentence in search.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.attention.attention import Attended, AttentionMechanism, FixedContext, Memory
from nmt.attention.build import build_attention, check_attention
from nmt.attention.normalizers import SampledAttention
from nmt.attention.settings import AttentionSettings
from nmt.attention.shapes import Position, Query
from nmt.config.schema import AttentionConfig, ModelConfig
from nmt.errors import UserError
from nmt.models.encoder import Encoder, EncoderOutput
from nmt.models.layers import CELLS, READOUTS, Attentional, Cell, Embedding, Readout, Stack


class DecoderState(NamedTuple):
    """The state that a step hands to the next."""

    layers: tuple[Float[Tensor, "batch beam state"], ...]
    feedback: Float[Tensor, "batch beam feedback"] | None  # an input of the next step; None without one
    position: Position  # the number of steps done
    past: Float[Tensor, "batch beam source"] | None = None  # accumulated attention, with coverage (`CoverageAttention`)

    def select(self, beams: Int[Tensor, "batch k"]) -> "DecoderState":
        """Return the states of `beams`, k hypotheses of each sentence."""
        return self._map(lambda x: x.gather(1, beams[:, :, None].expand(-1, -1, x.shape[2])))

    def keep(self, sentences: Int[Tensor, " kept"]) -> "DecoderState":
        """Return the states of some of the sentences."""
        return self._map(lambda x: x[sentences])

    def _map(self, function: Callable[[Tensor], Tensor]) -> "DecoderState":
        feedback, past = (None if part is None else function(part) for part in (self.feedback, self.past))
        return DecoderState(tuple(function(layer) for layer in self.layers), feedback, self.position, past)


class WordInputs(NamedTuple):
    """Contributions of target words to a decoder's input gates and its readout, computed before the recurrence."""

    gates: Float[Tensor, "*words gates"]
    readout: Float[Tensor, "*words term"] | None


class Emission(NamedTuple):
    """The outputs of one step: what the readout reads, and the attention; or those of all steps, along a first axis."""

    hidden: Float[Tensor, "*batch hidden"]
    context: Float[Tensor, "*batch context"]
    weights: Float[Tensor, "*batch source"]
    sampled: SampledAttention = SampledAttention()


class Decoded(NamedTuple):
    """Inputs of the output layer, and attention weights, for each target position."""

    features: Float[Tensor, "batch target feature"]
    weights: Float[Tensor, "batch target source"]
    sampled: SampledAttention = SampledAttention()  # set where training draws the weights at random


class Decoder(nn.Module, ABC):
    """A recurrent decoder with attention. A subclass defines `advance`, one step, and builds what that needs."""

    attends = True  # False for a fixed context, whose weights are uniform and carry no information

    def __init__(
        self,
        config: ModelConfig,
        embedding: Embedding,
        encoder: Encoder,
        *,
        first_input: int | None = None,
        upper_input: int | None = None,
    ) -> None:
        """Build what all decoders share.

        Args:
            config: of the model.
            embedding: the target embedding.
            encoder: whose states are attended to.
            first_input: input size of the first recurrent layer, if that is not a word's embedding.
            upper_input: input size of the layers above it, if that is not the hidden vector of the layer below.
        """
        super().__init__()
        cell, hidden = CELLS[config.cell], config.hidden_size
        first = cell(first_input or config.embedding_size, hidden)
        upper: list[Cell] = [cell(upper_input or hidden, hidden) for _ in range(config.num_layers - 1)]
        self.embedding = embedding
        self.bridge = nn.Sequential(nn.Linear(encoder.final_size, first.state_size), nn.Tanh())
        self.stack = Stack(first, upper, config.dropout_rate("state"))
        self.attention = self.build_attention(config, encoder.state_size)
        self.readout = self.build_readout(config, encoder.state_size)

    @classmethod
    def check(cls, config: ModelConfig, encoder: type[Encoder]) -> None:
        """Raise UserError for settings that this decoder cannot be built from."""
        names = config.attention
        settings = attention_settings(config, encoder.state_size_of(config))
        check_attention(names.score, names.normalizer, names.window, settings)

    @classmethod
    def check_ignored_settings(cls, config: ModelConfig) -> None:
        """Raise UserError for a setting that this decoder would ignore: the user probably meant another model."""
        if not config.input_feeding:
            raise UserError(
                f"model.input_feeding=false means nothing to model={config.decoder}: leave it out, or choose "
                "model=luong"
            )

    def build_attention(self, config: ModelConfig, state_size: int) -> AttentionMechanism:
        """Build the attention over the encoder's states."""
        names = config.attention
        return build_attention(names.score, names.normalizer, names.window, attention_settings(config, state_size))

    def build_readout(self, config: ModelConfig, state_size: int) -> Readout:
        """Build the readout, from hidden vector, context and word to the features of the output layer."""
        size, rate = config.embedding_size, config.dropout_rate("output")
        sizes = (config.hidden_size, state_size, config.embedding_size, size)
        return READOUTS[config.readout](*sizes, rate, locked=config.locked_dropout)

    def __str__(self) -> str:
        return f"{type(self).__name__}, {type(self.stack.first).__name__}"

    def project_memory(self, encoded: EncoderOutput, source_mask: Tensor) -> Memory:
        """Project the encoder's output into the memory, once per sentence."""
        return self.attention.project_memory(encoded.states, source_mask)

    def start(self, final: Float[Tensor, "batch layers final"]) -> DecoderState:
        """s_0 = tanh(W h_1), h_1 the last state of the backward encoder, layer by layer  (Bahdanau et al., 2015)."""
        # States stay in the parameters' precision under autocast: small updates of a long recurrence would be lost.
        layers = self.bridge(final).to(self.embedding.weight.dtype)[:, None].unbind(dim=2)
        return DecoderState(layers, self.first_feedback(layers[0]), 0)

    def first_feedback(self, state: Float[Tensor, "batch 1 state"]) -> Tensor | None:
        """Return the vector fed to the first step; most decoders feed nothing back."""
        return None

    def input_gates(self, vectors: Float[Tensor, "*words embedding"]) -> Float[Tensor, "*words gates"]:
        """Return what embedded words contribute to the gates of the cell that reads them."""
        return self.stack.first.inputs(vectors)

    def read_words(self, tokens: Int[Tensor, "*words"]) -> WordInputs:
        """Embed words (steps first in training) and compute their contributions to gates and readout."""
        embedded = self.embedding(tokens, step_axis=0)
        return WordInputs(self.input_gates(embedded), self.readout.project_word(embedded))

    def attend(self, query: Query, memory: Memory, state: DecoderState) -> Attended:
        """Attend with a query at the position of the state."""
        return self.attention(query, memory, state.position, state.past)

    def emit(
        self,
        hidden: Float[Tensor, "batch beam hidden"],
        layers: tuple[Float[Tensor, "batch beam state"], ...],
        attended: Attended,
        state: DecoderState,
        feedback: Float[Tensor, "batch beam feedback"] | None = None,
    ) -> tuple[DecoderState, Emission]:
        """Return the next state and the outputs of this step.

        Args:
            hidden: what the readout reads beside the context, mostly the hidden vector of the topmost layer.
            layers: the new state of each layer.
            attended: the result of `attend` at this step.
            state: the state before this step.
            feedback: an input of the next step, if there is one.
        """
        emission = Emission(hidden, attended.context, attended.weights, attended.sampled)
        return DecoderState(layers, feedback, state.position + 1, attended.past), emission

    @abstractmethod
    def advance(
        self, gates: Float[Tensor, "batch beam gates"], memory: Memory, state: DecoderState
    ) -> tuple[DecoderState, Emission]:
        """Do one step of the recurrence, by `attend`, `stack` and `emit`; in training the beam is 1.

        Args:
            gates: what the words that are read contribute to the gates (`input_gates`).
            memory: what is attended to.
            state: the state before this step.

        Returns:
            the next state, and the outputs of this step, as `emit` returns them.
        """

    def forward(self, target_in: Int[Tensor, "batch target"], memory: Memory, state: DecoderState) -> Decoded:
        """Decode whole targets, reading the reference words (teacher forcing)."""
        words = self.read_words(target_in.t())  # steps first: the rows of a step lie together
        hidden, context, weights, sampled = self.unroll(words.gates, memory, state)
        features = self.readout(hidden, context, words.readout)
        return Decoded(features.transpose(0, 1), weights.transpose(0, 1), sampled.map(lambda x: x.transpose(0, 1)))

    def unroll(self, gates: Float[Tensor, "step batch gates"], memory: Memory, state: DecoderState) -> Emission:
        """Do all steps of the recurrence, one by one; the result has steps first."""
        emissions = []
        for step_gates in gates[:, :, None]:
            state, emission = self.advance(step_gates, memory, state)
            emissions.append(emission)
        hidden, context, weights, sampled = zip(*emissions, strict=True)
        steps = [torch.stack(parts).squeeze(2) for parts in (hidden, context, weights)]
        return Emission(steps[0], steps[1], steps[2], SampledAttention.join(sampled).map(lambda x: x.squeeze(2)))

    def step(
        self, tokens: Int[Tensor, "batch beam"], memory: Memory, state: DecoderState
    ) -> tuple[Decoded, DecoderState]:
        """Decode one more token of every hypothesis."""
        words = self.read_words(tokens)
        state, emission = self.advance(words.gates, memory, state)
        return Decoded(self.readout(emission.hidden, emission.context, words.readout), emission.weights), state


class Bahdanau(Decoder):
    """c_i = attend(s_{i-1}), s_i = f(s_{i-1}, y_{i-1}, c_i): attend, then update  (Bahdanau et al., 2015)."""

    def __init__(self, config: ModelConfig, embedding: Embedding, encoder: Encoder) -> None:
        super().__init__(config, embedding, encoder)
        self.context = nn.Linear(encoder.state_size, self.stack.first.gates * config.hidden_size, bias=False)

    def advance(self, gates: Tensor, memory: Memory, state: DecoderState) -> tuple[DecoderState, Emission]:
        attended = self.attend(self.stack.top(state.layers), memory, state)
        layers = self.stack(gates + self.context(attended.context), state.layers)
        return self.emit(self.stack.top(layers), layers, attended, state)


@final
class FixedContextDecoder(Bahdanau):
    """s_i = f(s_{i-1}, y_{i-1}, c), c the sentence in one vector  (Cho et al., 2014; Sutskever et al., 2014)."""

    attends = False

    @classmethod
    def check(cls, config: ModelConfig, encoder: type[Encoder]) -> None:
        defaults = vars(AttentionConfig())
        for name, value in vars(config.attention).items():
            if value != defaults[name]:
                raise UserError(
                    f"model=fixed_context has no attention, so model.attention.{name}={value} means nothing: "
                    "leave it out, or choose model=bahdanau"
                )

    def build_attention(self, config: ModelConfig, state_size: int) -> AttentionMechanism:
        return FixedContext()

    def project_memory(self, encoded: EncoderOutput, source_mask: Tensor) -> Memory:
        return self.attention.project_memory(encoded.summary[:, None].expand_as(encoded.states), source_mask)


@final
class Conditional(Decoder):
    """s'_i = f(s_{i-1}, y_{i-1}), c_i = attend(s'_i), s_i = g(s'_i, c_i): update, attend, update.

    The conditional GRU of Nematus (Sennrich et al., 2017), with either cell; g is the first layer of the stack.
    """

    def __init__(self, config: ModelConfig, embedding: Embedding, encoder: Encoder) -> None:
        super().__init__(config, embedding, encoder, first_input=encoder.state_size)
        self.proposal = CELLS[config.cell](config.embedding_size, config.hidden_size)

    def input_gates(self, vectors: Float[Tensor, "*words embedding"]) -> Float[Tensor, "*words gates"]:
        return self.proposal.inputs(vectors)

    def advance(self, gates: Tensor, memory: Memory, state: DecoderState) -> tuple[DecoderState, Emission]:
        proposed = self.proposal(gates, state.layers[0])
        attended = self.attend(self.proposal.hidden(proposed), memory, state)
        layers = self.stack(self.stack.first.inputs(attended.context), (proposed, *state.layers[1:]))
        return self.emit(self.stack.top(layers), layers, attended, state)


@final
class Luong(Decoder):
    """s_i = f(s_{i-1}, [y_{i-1}; h~_{i-1}]), c_i = attend(s_i), h~_i = tanh(W [c_i; s_i])  (Luong et al., 2015).

    The attentional vector h~ is the readout, and with input feeding the next step's input.
    """

    def __init__(self, config: ModelConfig, embedding: Embedding, encoder: Encoder) -> None:
        super().__init__(config, embedding, encoder)
        hidden, gates = config.hidden_size, self.stack.first.gates * config.hidden_size
        self.attentional = nn.Linear(encoder.state_size + hidden, hidden, bias=False)
        self.feedback = nn.Linear(hidden, gates, bias=False) if config.input_feeding else None

    @classmethod
    def check_ignored_settings(cls, config: ModelConfig) -> None:
        if config.readout != "linear":
            raise UserError(
                f"model=luong has a readout of its own, a linear layer and tanh, so model.readout={config.readout} "
                "means nothing: set model.readout=linear, or choose model=bahdanau"
            )

    def build_readout(self, config: ModelConfig, state_size: int) -> Readout:
        size = config.hidden_size if config.tied_embeddings == "none" else config.embedding_size
        return Attentional(config.hidden_size, size, config.dropout_rate("output"), locked=config.locked_dropout)

    def first_feedback(self, state: Float[Tensor, "batch 1 state"]) -> Tensor | None:
        return None if self.feedback is None else state.new_zeros(*state.shape[:2], self.feedback.in_features)

    def advance(self, gates: Tensor, memory: Memory, state: DecoderState) -> tuple[DecoderState, Emission]:
        if self.feedback is not None:
            gates = gates + self.feedback(state.feedback)
        layers = self.stack(gates, state.layers)
        attended = self.attend(self.stack.top(layers), memory, state)
        joined = torch.cat((attended.context, self.stack.top(layers)), dim=-1)
        attentional = self.attentional(joined).tanh()
        feedback = None if self.feedback is None else attentional
        return self.emit(attentional, layers, attended, state, feedback)


@final
class GNMT(Decoder):
    """s^1_i = f(s^1_{i-1}, y_{i-1}), c_i = attend(s^1_i), s^k_i = f(s^k_{i-1}, [x^{k-1}_i; c_i]), k = 2 ... L.

    The layout of Google's system (Wu et al., 2016) as NVIDIA trains it: the first layer queries, the others read the
    context, and x^k = s^k + x^{k-1} from the third layer on. Nothing that was attended to is fed back to an earlier
    layer.
    """

    def __init__(self, config: ModelConfig, embedding: Embedding, encoder: Encoder) -> None:
        super().__init__(config, embedding, encoder, upper_input=config.hidden_size + encoder.state_size)

    @classmethod
    def check(cls, config: ModelConfig, encoder: type[Encoder]) -> None:
        super().check(config, encoder)
        if config.num_layers < 2:
            raise UserError(
                "model=gnmt queries with its first layer and reads with the others: set model.num_layers=2 or more"
            )

    def advance(self, gates: Tensor, memory: Memory, state: DecoderState) -> tuple[DecoderState, Emission]:
        first, *upper = self.stack.cells
        layers = [first(gates, state.layers[0])]
        hidden = first.hidden(layers[0])
        attended = self.attend(hidden, memory, state)
        for index, (cell, before) in enumerate(zip(upper, state.layers[1:], strict=True)):
            layers.append(cell(cell.inputs(self.join(hidden, attended.context)), before))
            hidden = cell.hidden(layers[-1]) + hidden if index else cell.hidden(layers[-1])
        return self.emit(hidden, tuple(layers), attended, state)

    def join(self, hidden: Tensor, context: Tensor) -> Tensor:
        """Return the input of an upper layer."""
        return self.stack.dropout(torch.cat((hidden, context.to(hidden.dtype)), dim=-1))


def attention_settings(config: ModelConfig, state_size: int) -> AttentionSettings:
    """Return the settings of the attention over encoder states of size `state_size`."""
    size = config.attention.size or config.hidden_size
    sizes = {"query_size": config.hidden_size, "state_size": state_size, "size": size}
    return AttentionSettings.from_config(config.attention, **sizes)


DECODERS: dict[str, type[Decoder]] = {
    "bahdanau": Bahdanau,
    "luong": Luong,
    "conditional": Conditional,
    "gnmt": GNMT,
    "fixed_context": FixedContextDecoder,
}
