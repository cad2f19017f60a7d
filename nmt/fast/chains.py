"""The recurrence of each decoder that feeds its attention back, step by step into prepared memory, and back."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.attention.attention import Memory
from nmt.fast.arena import Arena
from nmt.fast.attention import attention_steps
from nmt.fast.cells import STEPS, ParameterGrad, Recurrent, state_buffer
from nmt.fast.kernels import grad_tanh, tanh_
from nmt.fast.linear import STEP, FusedLinear
from nmt.fast.stack import StackSteps
from nmt.models.decoder import Bahdanau, Conditional, Decoder, Luong


class OutputGrads(NamedTuple):
    """Gradients of a chain's outputs at all steps, steps first, or at one; None where there is none."""

    hidden: Float[Tensor, "*step row hidden"] | None
    contexts: Float[Tensor, "*step row context"] | None
    weights: Float[Tensor, "*step row source"] | None

    def unbind(self, steps: int) -> list["OutputGrads"]:
        """Return those of each step."""
        parts = ([None] * steps if part is None else part.unbind(STEP) for part in self)
        return [OutputGrads(*part) for part in zip(*parts, strict=True)]


class Chain(ABC):
    """A decoder's recurrence over all target positions, once forwards and once backwards."""

    def __init__(
        self,
        arena: Arena,
        decoder: Any,
        gates: Float[Tensor, "step row gates"],
        memory: Memory,
        initial: Sequence[Float[Tensor, "row state"]],
        compute_dtype: torch.dtype,
    ) -> None:
        """Take the inputs of all steps; matrices are multiplied in `compute_dtype`."""
        self.arena, self.decoder, self.all_gates, self.initial = arena, decoder, gates, initial
        self.compute_dtype = compute_dtype
        self.steps, self.rows, _ = self.all_gates.shape
        self.gates = self.all_gates.unbind(STEP)
        self.dtype = self.initial[0].dtype
        self.states = [state_buffer(arena, state, self.steps) for state in self.initial]  # before and after each step
        make = attention_steps(decoder.attention)
        assert make is not None, "no chain for this attention"
        self.attention = make(arena, memory, self.steps)
        self.query_maps = [] if self.attention.weight is None else [self.attention.weight]
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Make the maps and buffers of this decoder. It sets `hidden` and `grad_gates`.

        `hidden`, [step, row, hidden], is the output; `grad_gates`, [step, row, gates], the gradient of the gates.
        """

    hidden: Float[Tensor, "step row hidden"]
    grad_gates: Float[Tensor, "step row gates"]

    @abstractmethod
    def forward(self, step: int) -> None:
        """Do a step."""

    @abstractmethod
    def backward(self, step: int, grad_states: Sequence[Tensor], grads: OutputGrads) -> None:
        """Turn `grad_states`, in place, from the gradients of the states after a step into those before it."""

    @abstractmethod
    def grads(self) -> Iterator[ParameterGrad]:
        """Yield the gradients of the parameters, when the chain has been run back."""

    def run(self) -> tuple[Tensor, Tensor, Tensor]:
        """Run forwards; return hidden vectors, contexts and weights, steps first, in the chain's own memory."""
        for step in range(self.steps):
            self.forward(step)
        return self.hidden, self.attention.all_contexts, self.attention.all_weights

    def run_back(self, output_grads: OutputGrads) -> tuple[Tensor, ...]:
        """Run backwards; return the gradients of the states before the first step."""
        grad_states = tuple(torch.zeros_like(state) for state in self.initial)
        grads = output_grads.unbind(self.steps)
        for step in range(self.steps - 1, -1, -1):
            self.backward(step, grad_states, grads[step])
        return grad_states

    def linear(self, vectors: Float[Tensor, "step row input"], *weights: Float[Tensor, "_ input"]) -> FusedLinear:
        """Return the maps of some vectors by some weights."""
        return FusedLinear(self.arena, vectors, weights, self.compute_dtype)

    def attend(self, step: int, hidden: Tensor, query: Sequence[Tensor]) -> Tensor:
        """Query with the projected vector if there is one, else with the hidden vector itself."""
        return self.attention.forward(step, query[0] if query else hidden)

    def backward_attend(self, step: int, grad_context: Tensor, grads: OutputGrads, grad_hidden: Tensor) -> list[Tensor]:
        """Return the gradient of the projected query, or add it to `grad_hidden` if there is no projection."""
        if grads.contexts is not None:
            grad_context = grad_context + grads.contexts
        grad_query = self.attention.backward(step, grad_context, grads.weights)
        if self.query_maps:
            return [grad_query]
        grad_hidden.add_(grad_query)
        return []

    def attention_grads(self, grad_query_maps: Sequence[Tensor]) -> Iterator[ParameterGrad]:
        """Yield the gradients of the attention's parameters."""
        yield from self.attention.grads()
        yield from zip(self.query_maps, grad_query_maps, strict=True)


@final
class BahdanauChain(Chain):
    """Query and recurrent gates in one product of s_{i-1}, then attention, then the rest of the gates."""

    decoder: Bahdanau

    def prepare(self) -> None:
        self.last = len(self.states) - 1
        others = {self.last: self.query_maps}
        self.stack = StackSteps(self.arena, self.decoder.stack, self.states, self.compute_dtype, others)
        self.contexts = self.linear(self.attention.all_contexts, self.decoder.context.weight)
        self.hidden, self.grad_gates = self.stack.hidden, self.contexts.all_grad_outputs

    def forward(self, step: int) -> None:
        query = self.stack.read(step)
        self.attend(step, self.stack.layers[-1].hidden_before[step], query)
        (share,) = self.contexts.forward(step)
        self.stack.update(step, share.add_(self.gates[step]))

    def backward(self, step: int, grad_states: Sequence[Tensor], grads: OutputGrads) -> None:
        grad_top = self.stack.top(grad_states[-1])
        if grads.hidden is not None:
            grad_top.add_(grads.hidden)
        self.stack.backward_update(step, grad_states, self.contexts.slots[step][0])
        grad_query = self.backward_attend(step, self.contexts.backward(step), grads, grad_top)
        self.stack.backward_read(step, grad_states, {self.last: grad_query})

    def grads(self) -> Iterator[ParameterGrad]:
        yield from self.stack.grads()
        yield self.decoder.context.weight, self.contexts.grad_weights()[0]
        yield from self.attention_grads(self.stack.layers[-1].maps.grad_weights()[1:])


@final
class ConditionalChain(Chain):
    """The query and the second cell's recurrent gates in one product of s'_i."""

    decoder: Conditional

    def prepare(self) -> None:
        arena, (before, after), cell = self.arena, self.states[0], self.decoder.proposal
        proposed = arena.take(*before.shape, dtype=self.dtype)
        self.proposal = STEPS[type(cell)](arena, Recurrent.of(cell), before, proposed, self.compute_dtype)
        states = [(proposed, after), *self.states[1:]]
        self.stack = StackSteps(arena, self.decoder.stack, states, self.compute_dtype, {0: self.query_maps})
        self.inputs = self.decoder.stack.first.inputs
        self.contexts = self.linear(self.attention.all_contexts, self.inputs.weight)
        self.hidden, self.grad_gates = self.stack.hidden, arena.take(*self.all_gates.shape, dtype=self.dtype)
        self.step_grad_gates = self.grad_gates.unbind(STEP)

    def forward(self, step: int) -> None:
        self.proposal.read(step)
        self.proposal.update(step, self.gates[step])
        query = self.stack.read(step)
        self.attend(step, self.proposal.hidden[step], query)
        (share,) = self.contexts.forward(step)
        self.stack.update(step, share.add_(self.inputs.bias))

    def backward(self, step: int, grad_states: Sequence[Tensor], grads: OutputGrads) -> None:
        if grads.hidden is not None:
            self.stack.top(grad_states[-1]).add_(grads.hidden)
        self.stack.backward_update(step, grad_states, self.contexts.slots[step][0])
        grad_proposed = grad_states[0][:, : self.proposal.size]
        grad_query = self.backward_attend(step, self.contexts.backward(step), grads, grad_proposed)
        self.stack.backward_read(step, grad_states, {0: grad_query})
        self.proposal.backward_update(step, grad_states[0], self.step_grad_gates[step])
        self.proposal.backward_read(step, grad_states[0])

    def grads(self) -> Iterator[ParameterGrad]:
        yield from self.stack.grads()
        yield from self.proposal.grads()
        yield self.inputs.weight, self.contexts.grad_weights()[0]
        yield self.inputs.bias, self.contexts.grad_bias()
        yield from self.attention_grads(self.stack.layers[0].maps.grad_weights()[1:])


@final
class LuongChain(Chain):
    """With input feeding; the query and the state's share of h~_i in one product of s_i."""

    decoder: Luong

    def prepare(self) -> None:
        feedback = self.decoder.feedback
        assert feedback is not None, "without input feeding there is no chain"
        self.stack = StackSteps(self.arena, self.decoder.stack, self.states, self.compute_dtype, {})
        self.tops = self.stack.hidden.unbind(STEP)
        weight = self.decoder.attentional.weight
        context_weight, hidden_weight = weight.split((self.attention.all_contexts.shape[2], len(weight)), dim=1)
        self.contexts = self.linear(self.attention.all_contexts, context_weight)
        self.reads_top = self.linear(self.stack.hidden, hidden_weight, *self.query_maps)
        initial = self.all_gates.new_zeros(self.rows, len(weight), dtype=self.dtype)
        fed, self.hidden = state_buffer(self.arena, initial, self.steps)
        self.attentionals = self.hidden.unbind(STEP)
        self.grad_fed = torch.zeros_like(initial)
        self.feedback = self.linear(fed, feedback.weight)
        self.grad_gates = self.feedback.all_grad_outputs

    def forward(self, step: int) -> None:
        self.stack.read(step)
        self.stack.update(step, self.feedback.forward(step)[0].add_(self.gates[step]))
        share, *query = self.reads_top.forward(step)
        self.attend(step, self.tops[step], query)
        tanh_(torch.add(share, self.contexts.forward(step)[0], out=self.attentionals[step]))

    def backward(self, step: int, grad_states: Sequence[Tensor], grads: OutputGrads) -> None:
        grad_top = self.stack.top(grad_states[-1])
        if grads.hidden is not None:
            self.grad_fed.add_(grads.hidden)
        slot, *query_slot = self.reads_top.slots[step]
        (context_slot,) = self.contexts.slots[step]
        grad_tanh(self.grad_fed, self.attentionals[step], out=context_slot)
        slot.copy_(context_slot)
        grad_query = self.backward_attend(step, self.contexts.backward(step), grads, grad_top)
        for place, grad in zip(query_slot, grad_query, strict=True):
            place.copy_(grad)
        grad_top.add_(self.reads_top.backward(step))
        self.stack.backward_update(step, grad_states, self.feedback.slots[step][0])
        self.stack.backward_read(step, grad_states, {})
        self.grad_fed.copy_(self.feedback.backward(step))

    def grads(self) -> Iterator[ParameterGrad]:
        yield from self.stack.grads()
        grad_hidden, *grad_query = self.reads_top.grad_weights()
        yield self.decoder.attentional.weight, torch.cat((self.contexts.grad_weights()[0], grad_hidden), dim=1)
        yield from self.attention_grads(grad_query)
        assert self.decoder.feedback is not None
        yield self.decoder.feedback.weight, self.feedback.grad_weights()[0]


CHAINS: dict[type[Decoder], type[Chain]] = {
    Bahdanau: BahdanauChain,
    Conditional: ConditionalChain,
    Luong: LuongChain,
}
