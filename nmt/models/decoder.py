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

from nmt.attention.attention import AttentionMechanism, Memory
from nmt.attention.normalizers import SampledAttention
from nmt.fast.chains import BahdanauChain, Chain, ConditionalChain, LuongChain, Task
from nmt.fast.parallel import attend_at_all_steps, needs_much_memory, sequence
from nmt.fast.recurrence import decode
from nmt.models.cells import Cell
from nmt.models.embedding import Embedded, Embedding
from nmt.models.readout import Readout
from nmt.models.stack import Stack


class DecoderState(NamedTuple):
    """What a step hands to the next: the state of each layer, what is fed back, and what attention remembers."""

    layers: tuple[Float[Tensor, "batch beam state"], ...]
    feedback: Float[Tensor, "batch beam feedback"] | None
    position: int
    past: Float[Tensor, "batch beam source"] | None = None

    def select(self, beams: Int[Tensor, "batch k"]) -> "DecoderState":
        """Return the states of `beams`, k hypotheses of each sentence."""
        return self._map(lambda x: x.gather(1, beams[:, :, None].expand(-1, -1, x.shape[2])))

    def keep(self, sentences: Int[Tensor, " kept"]) -> "DecoderState":
        """Return the states of some of the sentences."""
        return self._map(lambda x: x[sentences])

    def _map(self, function: Callable[[Tensor], Tensor]) -> "DecoderState":
        feedback, past = (None if part is None else function(part) for part in (self.feedback, self.past))
        return DecoderState(tuple(function(layer) for layer in self.layers), feedback, self.position, past)


class Emission(NamedTuple):
    """What a step emits for the readout; or all steps, then in front of the batch."""

    hidden: Float[Tensor, "*batch hidden"]
    context: Float[Tensor, "*batch context"]
    weights: Float[Tensor, "*batch source"]
    sampled: SampledAttention = SampledAttention()


class Decoded(NamedTuple):
    """The decoder's answer: inputs of the output layer, and attention weights, for each target position.

    `sampled` is there where training draws the weights at random.
    """

    features: Float[Tensor, "batch target feature"]
    weights: Float[Tensor, "batch target source"]
    sampled: SampledAttention = SampledAttention()


class Decoder(nn.Module, ABC):
    """A recurrent decoder with attention."""

    def __init__(
        self,
        embedding: Embedding,
        bridge: nn.Module,
        stack: Stack,
        attention: AttentionMechanism,
        readout: Readout,
        *,
        fast: bool = True,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.bridge = bridge
        self.stack = stack
        self.attention = attention
        self.readout = readout
        self.fast = fast

    def start(self, final: Float[Tensor, "batch layers final"]) -> DecoderState:
        """s_0 = tanh(W h_1), h_1 the last state of the backward encoder, layer by layer  (Bahdanau et al., 2015)."""
        # States stay in the parameters' precision under autocast: small updates of a long recurrence would be lost.
        layers = self.bridge(final).to(self.embedding.weight.dtype)[:, None].unbind(dim=2)
        return DecoderState(layers, self.first_feedback(layers[0]), 0)

    def first_feedback(self, state: Float[Tensor, "batch 1 state"]) -> Tensor | None:
        """Return the vector fed to the first step; most decoders feed nothing back."""
        return None

    def input_gates(self, vectors: Float[Tensor, "*words embedding"]) -> Float[Tensor, "*words gates"]:
        """Return the share of embedded words in the gates of the cell that reads them."""
        return self.stack.first.inputs(vectors)

    @abstractmethod
    def advance(self, gates: Tensor, memory: Memory, state: DecoderState) -> tuple[DecoderState, Emission]:
        """Do one step of the recurrence, given the embedded word's share of the gates."""

    @abstractmethod
    def fast_path(self, embedded: Embedded, memory: Memory, state: DecoderState) -> Emission:
        """As `unroll`, but quick; not for an attention that must go step by step."""

    def forward(self, target_in: Int[Tensor, "batch target"], memory: Memory, state: DecoderState) -> Decoded:
        """Decode whole targets, the right words fed in (teacher forcing)."""
        is_fast = self.fast and not self.attention.stepwise
        tokens = target_in.t()  # steps first: each step's rows lie together
        embedded = self.embedding.shared(tokens) if is_fast else Embedded(self.embedding(tokens))
        run = self.fast_path if is_fast else self.unroll
        hidden, context, weights, sampled = run(embedded, memory, state)
        features = self.readout(hidden, context, embedded)
        return Decoded(features.transpose(0, 1), weights.transpose(0, 1), sampled.map(lambda x: x.transpose(0, 1)))

    def unroll(self, embedded: Embedded, memory: Memory, state: DecoderState) -> Emission:
        """Do all steps of the recurrence, one by one: what the fast path must equal. Emits steps first."""
        emissions = []
        for share in embedded.map(self.input_gates)[:, :, None]:
            state, emission = self.advance(share, memory, state)
            emissions.append(emission)
        hidden, context, weights, chances = zip(*emissions, strict=True)
        steps = [torch.stack(parts)[:, :, 0] for parts in (hidden, context, weights)]
        return Emission(steps[0], steps[1], steps[2], SampledAttention.join(chances).map(lambda x: x[:, :, 0]))

    def step(
        self, tokens: Int[Tensor, "batch beam"], memory: Memory, state: DecoderState
    ) -> tuple[Decoded, DecoderState]:
        """Decode one more token of every hypothesis."""
        embedded = self.embedding.shared(tokens)
        state, emission = self.advance(embedded.map(self.input_gates), memory, state)
        return Decoded(self.readout(emission.hidden, emission.context, embedded), emission.weights), state


class Feeding(Decoder):
    """A decoder in which what a step attended to is an input of the next: its fast path goes step by step as well."""

    @abstractmethod
    def chain(self, task: Task) -> Chain:
        """Prepare the recurrence and its derivative, written by hand."""

    def fast_path(self, embedded: Embedded, memory: Memory, state: DecoderState) -> Emission:
        return Emission(*decode(self, embedded.map(self.input_gates), memory, state.layers))


@final
class Bahdanau(Feeding):
    """c_i = attend(s_{i-1}), s_i = f(s_{i-1}, y_{i-1}, c_i): attend, then update  (Bahdanau et al., 2015)."""

    def __init__(self, *args: object, context: nn.Linear, **options: bool) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.context = context

    def advance(self, gates: Tensor, memory: Memory, state: DecoderState) -> tuple[DecoderState, Emission]:
        attended = self.attention(self.stack.top(state.layers), memory, state.position, state.past)
        layers = self.stack(gates + self.context(attended.context), state.layers)
        emission = Emission(self.stack.top(layers), attended.context, attended.weights, attended.sampled)
        return DecoderState(layers, None, state.position + 1, attended.past), emission

    def chain(self, task: Task) -> Chain:
        return BahdanauChain(task, self.attention, self.stack, self.context)


@final
class Conditional(Feeding):
    """s'_i = f(s_{i-1}, y_{i-1}), c_i = attend(s'_i), s_i = g(s'_i, c_i): update, attend, update.

    The conditional GRU of Nematus (Sennrich et al., 2017), with either cell; g is the first layer of the stack.
    """

    def __init__(self, *args: object, proposal: Cell, **options: bool) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.proposal = proposal

    def input_gates(self, vectors: Float[Tensor, "*words embedding"]) -> Float[Tensor, "*words gates"]:
        return self.proposal.inputs(vectors)

    def advance(self, gates: Tensor, memory: Memory, state: DecoderState) -> tuple[DecoderState, Emission]:
        proposed = self.proposal(gates, state.layers[0])
        attended = self.attention(self.proposal.hidden(proposed), memory, state.position, state.past)
        layers = self.stack(self.stack.first.inputs(attended.context), (proposed, *state.layers[1:]))
        emission = Emission(self.stack.top(layers), attended.context, attended.weights, attended.sampled)
        return DecoderState(layers, None, state.position + 1, attended.past), emission

    def chain(self, task: Task) -> Chain:
        return ConditionalChain(task, self.attention, self.stack, self.proposal)


@final
class Luong(Feeding):
    """s_i = f(s_{i-1}, [y_{i-1}; h~_{i-1}]), c_i = attend(s_i), h~_i = tanh(W [c_i; s_i])  (Luong et al., 2015).

    The attentional vector h~ is the readout, and with input feeding the next step's input.
    """

    def __init__(self, *args: object, attentional: nn.Linear, feedback: nn.Linear | None, **options: bool) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.attentional = attentional
        self.feedback = feedback

    def first_feedback(self, state: Float[Tensor, "batch 1 state"]) -> Tensor | None:
        return None if self.feedback is None else state.new_zeros(*state.shape[:2], self.feedback.in_features)

    def fast_path(self, embedded: Embedded, memory: Memory, state: DecoderState) -> Emission:
        if self.feedback is not None or needs_much_memory(self.attention):
            return super().fast_path(embedded, memory, state)
        first, *upper = self.stack.cells
        hidden = sequence(first, embedded, state.layers[0][:, 0])
        for cell, initial in zip(upper, state.layers[1:], strict=True):
            hidden = sequence(cell, Embedded(self.stack.dropout(hidden)), initial[:, 0])
        context, weights = attend_at_all_steps(self.attention, hidden, memory)
        attentional = self.attentional(torch.cat((context, hidden), dim=-1)).tanh()
        return Emission(attentional, context, weights)

    def advance(self, gates: Tensor, memory: Memory, state: DecoderState) -> tuple[DecoderState, Emission]:
        if self.feedback is not None:
            gates = gates + self.feedback(state.feedback)
        layers = self.stack(gates, state.layers)
        attended = self.attention(self.stack.top(layers), memory, state.position, state.past)
        joined = torch.cat((attended.context, self.stack.top(layers)), dim=-1)
        attentional = self.attentional(joined).tanh()
        feedback = None if self.feedback is None else attentional
        emission = Emission(attentional, attended.context, attended.weights, attended.sampled)
        return DecoderState(layers, feedback, state.position + 1, attended.past), emission

    def chain(self, task: Task) -> Chain:
        return LuongChain(task, self.attention, self.stack, self.attentional, self.feedback)


@final
class Gnmt(Decoder):
    """s^1_i = f(s^1_{i-1}, y_{i-1}), c_i = attend(s^1_i), s^k_i = f(s^k_{i-1}, [x^{k-1}_i; c_i]), k = 2 ... L.

    The layout of Google's system (Wu et al., 2016) as NVIDIA trains it: the first layer queries, the others read the
    context, and x^k = s^k + x^{k-1} from the third layer on. Nothing that was attended to is fed back to an earlier
    layer, so every layer reads its whole sequence at once and attention is one batched product.
    """

    def advance(self, gates: Tensor, memory: Memory, state: DecoderState) -> tuple[DecoderState, Emission]:
        first, *upper = self.stack.cells
        layers = [first(gates, state.layers[0])]
        hidden = first.hidden(layers[0])
        attended = self.attention(hidden, memory, state.position, state.past)
        for index, (cell, before) in enumerate(zip(upper, state.layers[1:], strict=True)):
            layers.append(cell(cell.inputs(self.joined(hidden, attended.context)), before))
            hidden = cell.hidden(layers[-1]) + hidden if index else cell.hidden(layers[-1])
        emission = Emission(hidden, attended.context, attended.weights, attended.sampled)
        return DecoderState(tuple(layers), None, state.position + 1, attended.past), emission

    def fast_path(self, embedded: Embedded, memory: Memory, state: DecoderState) -> Emission:
        first, *upper = self.stack.cells
        hidden = sequence(first, embedded, state.layers[0][:, 0])
        context, weights = attend_at_all_steps(self.attention, hidden, memory)
        for index, (cell, initial) in enumerate(zip(upper, state.layers[1:], strict=True)):
            new = sequence(cell, Embedded(self.joined(hidden, context)), initial[:, 0])
            hidden = new + hidden if index else new
        return Emission(hidden, context, weights)

    def joined(self, hidden: Tensor, context: Tensor) -> Tensor:
        """Return the input of an upper layer."""
        joined: Tensor = self.stack.dropout(torch.cat((hidden, context.to(hidden.dtype)), dim=-1))
        return joined
