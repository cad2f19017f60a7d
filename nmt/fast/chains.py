"""The recurrence of each decoder of `nmt.models.decoder`, step by step into prepared memory, and back."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.attention.attention import AttentionMechanism, Memory
from nmt.fast.arena import Arena
from nmt.fast.attention import AttentionSteps, attention_steps
from nmt.fast.cells import STEPS, Gradient, Recurrent
from nmt.fast.functions import by_tanh, tanh_
from nmt.fast.product import STEP, Readers
from nmt.fast.stack import StackSteps, state_buffer
from nmt.models.cells import Cell
from nmt.models.stack import Stack


class Given(NamedTuple):
    """What a chain is to be run on, steps first, and the type in which it is to multiply matrices."""

    gates: Float[Tensor, "step row gates"]
    memory: Memory
    initial: Sequence[Float[Tensor, "row state"]]
    kind: torch.dtype


class Task(NamedTuple):
    """What a chain is to be run on, and the memory to write into."""

    arena: Arena
    given: Given


class Emitted(NamedTuple):
    """Gradients of what all steps emit, steps first, or of what one does; None where there is none."""

    hidden: Float[Tensor, "step row hidden"] | None
    contexts: Float[Tensor, "step row context"] | None
    weights: Float[Tensor, "step row source"] | None

    def by_step(self, steps: int) -> list["Emitted"]:
        """Return each step's."""
        parts = ([None] * steps if part is None else part.unbind(STEP) for part in self)
        return [Emitted(*each) for each in zip(*parts, strict=True)]


class Chain(ABC):
    """A decoder's recurrence over all target positions, once forwards and once backwards."""

    def __init__(self, task: Task, attention: AttentionMechanism) -> None:
        self.arena, (self.all_gates, memory, self.initial, self.kind) = task
        self.steps, self.rows, _ = self.all_gates.shape
        self.gates = self.all_gates.unbind(STEP)
        self.dtype = self.initial[0].dtype
        self.states = [state_buffer(self.arena, state, self.steps) for state in self.initial]  # before and after
        self.attention: AttentionSteps = attention_steps(self.arena, attention, memory, self.steps, self.kind)
        self.queried = [] if self.attention.weight is None else [self.attention.weight]

    def run(self) -> tuple[Tensor, Tensor, Tensor]:
        """Run forwards; return hidden vectors, contexts and weights, steps first, in the chain's own memory."""
        for step in range(self.steps):
            self.forward(step)
        return self.hidden, self.attention.all_contexts, self.attention.all_weights

    def run_back(self, by_emitted: Emitted) -> tuple[Tensor, ...]:
        """Run backwards; return the gradients of the states before the first step."""
        by_states = tuple(torch.zeros_like(state) for state in self.initial)
        by_step = by_emitted.by_step(self.steps)
        for step in range(self.steps - 1, -1, -1):
            self.backward(step, by_states, by_step[step])
        return by_states

    @property
    @abstractmethod
    def hidden(self) -> Float[Tensor, "step row hidden"]:
        """What is emitted as hidden vectors."""

    @property
    @abstractmethod
    def by_gates(self) -> Float[Tensor, "step row gates"]:
        """The gradient of the gates that were given."""

    @abstractmethod
    def forward(self, step: int) -> None:
        """Do a step."""

    @abstractmethod
    def backward(self, step: int, by_states: Sequence[Tensor], by: Emitted) -> None:
        """Undo a step: turn `by_states`, in place, from the gradients of the states after it into those before it."""

    @abstractmethod
    def gradients(self) -> Iterator[Gradient]:
        """Yield the gradients of the parameters, when the chain has been run back."""

    def attend(self, step: int, hidden: Tensor, query: Sequence[Tensor]) -> Tensor:
        """Query with the projected vector if there is one, else with the hidden vector itself."""
        return self.attention.forward(step, query[0] if query else hidden)

    def attend_back(self, step: int, by_context: Tensor, by: Emitted, by_hidden: Tensor) -> list[Tensor]:
        """Return the gradient of the projected query, or add it to `by_hidden` if there is no projection."""
        if by.contexts is not None:
            by_context = by_context + by.contexts
        by_query = self.attention.backward(step, by_context, by.weights)
        if self.queried:
            return [by_query]
        by_hidden.add_(by_query)
        return []

    def query_gradient(self, found: Sequence[Tensor]) -> Iterator[Gradient]:
        """Yield the gradient of the map to the query, if there is one."""
        if self.attention.weight is not None:
            yield self.attention.weight, found[0]


@final
class BahdanauChain(Chain):
    """Query and recurrent gates in one product of s_{i-1}, then attention, then the rest of the gates."""

    def __init__(self, task: Task, attention: AttentionMechanism, stack: Stack, context: nn.Linear) -> None:
        super().__init__(task, attention)
        self.last = len(self.states) - 1
        self.stack = StackSteps(self.arena, stack, self.states, self.kind, {self.last: self.queried})
        self.context = context
        self.contexts = Readers(self.arena, self.attention.all_contexts, [context.weight], self.kind)

    @property
    def hidden(self) -> Float[Tensor, "step row hidden"]:
        return self.stack.hidden

    @property
    def by_gates(self) -> Float[Tensor, "step row gates"]:
        return self.contexts.all_by_outputs

    def forward(self, step: int) -> None:
        query = self.stack.read(step)
        self.attend(step, self.stack.layers[-1].hidden_before[step], query)
        (share,) = self.contexts.forward(step)
        self.stack.update(step, share.add_(self.gates[step]))

    def backward(self, step: int, by_states: Sequence[Tensor], by: Emitted) -> None:
        by_top = self.stack.top(by_states[-1])
        if by.hidden is not None:
            by_top.add_(by.hidden)
        self.stack.backward_update(step, by_states, self.contexts.slots[step][0])
        by_query = self.attend_back(step, self.contexts.backward(step), by, by_top)
        self.stack.backward_read(step, by_states, {self.last: by_query})

    def gradients(self) -> Iterator[Gradient]:
        yield from self.stack.gradients()
        yield self.context.weight, self.contexts.gradients()[0]
        yield from self.attention.gradients()
        yield from self.query_gradient(self.stack.layers[-1].readers.gradients()[1:])


@final
class ConditionalChain(Chain):
    """The query and the second cell's recurrent gates in one product of s'_i."""

    def __init__(self, task: Task, attention: AttentionMechanism, stack: Stack, cell: Cell) -> None:
        super().__init__(task, attention)
        arena, (before, after) = self.arena, self.states[0]
        proposed = arena.take(*before.shape, dtype=self.dtype)
        self.proposal = STEPS[type(cell)](arena, Recurrent.of(cell), before, proposed, self.kind)
        self.stack = StackSteps(arena, stack, [(proposed, after), *self.states[1:]], self.kind, {0: self.queried})
        self.inputs = stack.first.inputs
        self.contexts = Readers(arena, self.attention.all_contexts, [self.inputs.weight], self.kind)
        self.all_by_gates = arena.take(*self.all_gates.shape, dtype=self.dtype)
        self.by_input = self.all_by_gates.unbind(STEP)

    @property
    def hidden(self) -> Float[Tensor, "step row hidden"]:
        return self.stack.hidden

    @property
    def by_gates(self) -> Float[Tensor, "step row gates"]:
        return self.all_by_gates

    def forward(self, step: int) -> None:
        self.proposal.read(step)
        self.proposal.update(step, self.gates[step])
        query = self.stack.read(step)
        self.attend(step, self.proposal.hidden[step], query)
        (share,) = self.contexts.forward(step)
        self.stack.update(step, share.add_(self.inputs.bias))

    def backward(self, step: int, by_states: Sequence[Tensor], by: Emitted) -> None:
        if by.hidden is not None:
            self.stack.top(by_states[-1]).add_(by.hidden)
        self.stack.backward_update(step, by_states, self.contexts.slots[step][0])
        by_query = self.attend_back(step, self.contexts.backward(step), by, by_states[0][:, : self.proposal.size])
        self.stack.backward_read(step, by_states, {0: by_query})
        self.proposal.backward_update(step, by_states[0], self.by_input[step])
        self.proposal.backward_read(step, by_states[0])

    def gradients(self) -> Iterator[Gradient]:
        yield from self.stack.gradients()
        yield from self.proposal.gradients()
        yield self.inputs.weight, self.contexts.gradients()[0]
        yield self.inputs.bias, self.contexts.all_by_outputs.sum(dim=(0, 1), dtype=self.dtype)
        yield from self.attention.gradients()
        yield from self.query_gradient(self.stack.layers[0].readers.gradients()[1:])


@final
class LuongChain(Chain):
    """The query and the state's share of h~_i in one product of s_i."""

    def __init__(
        self,
        task: Task,
        attention: AttentionMechanism,
        stack: Stack,
        attentional: nn.Linear,
        feedback: nn.Linear | None,
    ) -> None:
        super().__init__(task, attention)
        arena = self.arena
        self.stack = StackSteps(arena, stack, self.states, self.kind, {})
        self.top_hidden = self.stack.hidden.unbind(STEP)
        self.attentional, self.feedback = attentional, feedback
        size = attentional.out_features
        by_context, by_hidden = self.attentional.weight.split((self.attention.all_contexts.shape[2], size), dim=1)
        self.contexts = Readers(arena, self.attention.all_contexts, [by_context], self.kind)
        self.tops = Readers(arena, self.stack.hidden, [by_hidden, *self.queried], self.kind)
        nothing = self.all_gates.new_zeros(self.rows, size, dtype=self.dtype)
        fed, self.all_attentional = state_buffer(arena, nothing, self.steps)
        self.by_fed = torch.zeros_like(nothing)
        self.attentionals = self.all_attentional.unbind(STEP)
        self.feedbacks: Readers | None = None
        if self.feedback is not None:
            self.feedbacks = Readers(arena, fed, [self.feedback.weight], self.kind)
            self.all_by_gates = self.feedbacks.all_by_outputs
            self.by_input = [slots[0] for slots in self.feedbacks.slots]
        else:
            self.all_by_gates = arena.take(*self.all_gates.shape, dtype=self.dtype)
            self.by_input = list(self.all_by_gates.unbind(STEP))

    @property
    def hidden(self) -> Float[Tensor, "step row hidden"]:
        return self.all_attentional

    @property
    def by_gates(self) -> Float[Tensor, "step row gates"]:
        return self.all_by_gates

    def forward(self, step: int) -> None:
        gates = self.gates[step]
        if self.feedbacks is not None:
            gates = self.feedbacks.forward(step)[0].add_(gates)
        self.stack.read(step)
        self.stack.update(step, gates)
        share, *query = self.tops.forward(step)
        self.attend(step, self.top_hidden[step], query)
        tanh_(torch.add(share, self.contexts.forward(step)[0], out=self.attentionals[step]))

    def backward(self, step: int, by_states: Sequence[Tensor], by: Emitted) -> None:
        by_top = self.stack.top(by_states[-1])
        if by.hidden is not None:
            self.by_fed.add_(by.hidden)
        slot, *query_slot = self.tops.slots[step]
        (context_slot,) = self.contexts.slots[step]
        by_tanh(self.by_fed, self.attentionals[step], out=context_slot)
        slot.copy_(context_slot)
        by_query = self.attend_back(step, self.contexts.backward(step), by, by_top)
        for place, gradient in zip(query_slot, by_query, strict=True):
            place.copy_(gradient)
        by_top.add_(self.tops.backward(step))
        self.stack.backward_update(step, by_states, self.by_input[step])
        self.stack.backward_read(step, by_states, {})
        if self.feedbacks is not None:
            self.by_fed.copy_(self.feedbacks.backward(step))
        else:
            self.by_fed.zero_()

    def gradients(self) -> Iterator[Gradient]:
        yield from self.stack.gradients()
        yield from self.attention.gradients()
        by_hidden, *by_query = self.tops.gradients()
        yield self.attentional.weight, torch.cat((self.contexts.gradients()[0], by_hidden), dim=1)
        yield from self.query_gradient(by_query)
        if self.feedback is not None and self.feedbacks is not None:
            yield self.feedback.weight, self.feedbacks.gradients()[0]
