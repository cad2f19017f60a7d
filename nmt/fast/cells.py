"""The recurrent cells of `nmt.models.cells`, step by step into prepared memory, with their derivatives."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.fast.arena import Arena
from nmt.fast.functions import by_sigmoid, by_tanh, tanh_
from nmt.fast.product import STEP, Readers
from nmt.models.cells import GRU, LSTM, Cell

Gradient = tuple[Tensor, Tensor]  # a parameter, and its gradient


class Recurrent(NamedTuple):
    """What a cell multiplies its state with: W of all gates, and for a GRU the bias of U h + b in the candidate."""

    weight: Float[Tensor, "*direction gates hidden"]
    bias: Float[Tensor, "*direction hidden"] | None

    @classmethod
    def of(cls, cell: Cell) -> "Recurrent":
        """Return a cell's."""
        return cls(cell.recurrent.weight, cell.candidate_bias if isinstance(cell, GRU) else None)


class CellSteps(ABC):
    """after_t = cell(gates_t, before_t) for all steps; whatever else reads before_t shares the recurrent product."""

    parts: int  # blocks of the hidden size in a state

    def __init__(
        self,
        arena: Arena,
        recurrent: Recurrent,
        before: Float[Tensor, "*direction step row state"],
        after: Float[Tensor, "*direction step row state"],
        kind: torch.dtype,
        others: Sequence[Tensor] = (),
    ) -> None:
        self.weight, self.bias = recurrent
        num_gates, self.size = self.weight.shape[-2:]
        self.all_hidden = after[..., : self.size]
        self.hidden = self.all_hidden.unbind(STEP)
        self.readers = Readers(arena, before[..., : self.size], [self.weight, *others], kind)
        self.hidden_before = self.readers.vectors
        self.all_gates = arena.take(*before.shape[:-1], num_gates, dtype=before.dtype)
        self.scratch = arena.take(*self.hidden[0].shape, dtype=before.dtype)

    def read(self, step: int) -> tuple[Tensor, ...]:
        """Multiply before_t with the recurrent weights and the others'; return the others' results."""
        self.recurrent, *others = self.readers.forward(step)
        return tuple(others)

    @abstractmethod
    def update(self, step: int, gates: Float[Tensor, "*direction row gates"]) -> None:
        """Write after_t; `gates` is the inputs' share of the gates."""

    @abstractmethod
    def differentiate(
        self, step: int, by_state: Float[Tensor, "*direction row state"], by_gates: Tensor, by_recurrent: Tensor
    ) -> None:
        """Turn `by_state` from the gradient of after_t into before_t's, but for the product; write the others."""

    def backward_update(self, step: int, by_state: Tensor, by_gates: Tensor) -> None:
        """The backward of `update`: write the gradient of `gates`, and turn `by_state` as `differentiate` does."""
        self.differentiate(step, by_state, by_gates, self.readers.slots[step][0])

    def backward_read(self, step: int, by_state: Tensor, *by_others: Tensor) -> None:
        """The backward of `read`: add what before_t owes to the products."""
        for slot, by_other in zip(self.readers.slots[step][1:], by_others, strict=True):
            slot.copy_(by_other)
        by_state[..., : self.size].add_(self.readers.backward(step))

    def gradients(self) -> Iterator[Gradient]:
        """Yield the gradients of the recurrent parameters."""
        yield self.weight, self.readers.gradients()[0]


@final
class GRUSteps(CellSteps):
    """Keeps r, z, n and U h + b of every step."""

    parts = 1

    def __init__(self, arena: Arena, recurrent: Recurrent, before: Tensor, after: Tensor, *arguments: object) -> None:
        super().__init__(arena, recurrent, before, after, *arguments)  # type: ignore[arg-type]
        assert self.bias is not None
        self.inside = self.bias[..., None, :]
        self.sizes = (2 * self.size, self.size)
        openings, candidates = self.all_gates.split(self.sizes, dim=-1)
        self.openings, self.candidates = openings.unbind(STEP), candidates.unbind(STEP)
        self.resets, self.updates = (half.unbind(STEP) for half in openings.chunk(2, dim=-1))
        self.recurrent_candidates = arena.take(*before.shape, dtype=before.dtype).unbind(STEP)

    def update(self, step: int, gates: Float[Tensor, "*direction row gates"]) -> None:
        opening, candidate = self.openings[step], self.candidates[step]
        by_input, candidate_by_input = gates.split_with_sizes(self.sizes, dim=-1)
        by_state, candidate_by_state = self.recurrent.split_with_sizes(self.sizes, dim=-1)
        torch.add(by_input, by_state, out=opening).sigmoid_()
        recurrent = torch.add(candidate_by_state, self.inside, out=self.recurrent_candidates[step])
        tanh_(torch.addcmul(candidate_by_input, self.resets[step], recurrent, out=candidate))
        torch.lerp(candidate, self.hidden_before[step], self.updates[step], out=self.hidden[step])

    def differentiate(
        self, step: int, by_state: Float[Tensor, "*direction row state"], by_gates: Tensor, by_recurrent: Tensor
    ) -> None:
        reset, update, candidate = self.resets[step], self.updates[step], self.candidates[step]
        by_opening, by_candidate = by_gates.split_with_sizes(self.sizes, dim=-1)
        by_reset, by_update = by_opening.split_with_sizes((self.size, self.size), dim=-1)
        recurrent_by_opening, recurrent_by_candidate = by_recurrent.split_with_sizes(self.sizes, dim=-1)
        by_sigmoid(
            torch.sub(self.hidden_before[step], candidate, out=self.scratch).mul_(by_state), update, out=by_update
        )
        by_tanh(torch.addcmul(by_state, by_state, update, value=-1.0, out=self.scratch), candidate, out=by_candidate)
        by_sigmoid(torch.mul(by_candidate, self.recurrent_candidates[step], out=self.scratch), reset, out=by_reset)
        recurrent_by_opening.copy_(by_opening)
        torch.mul(by_candidate, reset, out=recurrent_by_candidate)
        by_state.mul_(update)

    def gradients(self) -> Iterator[Gradient]:
        yield from super().gradients()
        assert self.bias is not None
        by_recurrent = self.readers.all_by_outputs[..., 2 * self.size : 3 * self.size]
        yield self.bias, by_recurrent.sum(dim=(STEP, -2), dtype=self.bias.dtype)


@final
class LSTMSteps(CellSteps):
    """Keeps i, f, o, the candidate and tanh c' of every step."""

    parts = 2

    def __init__(self, arena: Arena, recurrent: Recurrent, before: Tensor, after: Tensor, *arguments: object) -> None:
        super().__init__(arena, recurrent, before, after, *arguments)  # type: ignore[arg-type]
        self.gates = self.all_gates.unbind(STEP)
        self.openings = self.all_gates[..., : 3 * self.size].unbind(STEP)
        blocks = (block.unbind(STEP) for block in self.all_gates.chunk(4, dim=-1))
        self.blocks = list(zip(*blocks, strict=True))
        self.memories = before[..., self.size :].unbind(STEP)
        self.new_memories = after[..., self.size :].unbind(STEP)
        self.shown = arena.take(*self.all_hidden.shape, dtype=before.dtype).unbind(STEP)

    def update(self, step: int, gates: Float[Tensor, "*direction row gates"]) -> None:
        torch.add(gates, self.recurrent, out=self.gates[step])
        self.openings[step].sigmoid_()
        enter, forget, out, candidate = self.blocks[step]
        memory = torch.mul(forget, self.memories[step], out=self.new_memories[step])
        memory.addcmul_(enter, tanh_(candidate))
        torch.mul(out, tanh_(self.shown[step].copy_(memory)), out=self.hidden[step])

    def differentiate(
        self, step: int, by_state: Float[Tensor, "*direction row state"], by_gates: Tensor, by_recurrent: Tensor
    ) -> None:
        enter, forget, out, candidate = self.blocks[step]
        by_enter, by_forget, by_out, by_candidate = by_gates.chunk(4, dim=-1)
        by_hidden, by_memory = by_state.chunk(2, dim=-1)
        shown, scratch = self.shown[step], self.scratch
        by_sigmoid(torch.mul(by_hidden, shown, out=scratch), out, out=by_out)
        by_tanh(torch.mul(by_hidden, out, out=scratch), shown, out=scratch)
        by_memory.add_(scratch)
        by_sigmoid(torch.mul(by_memory, candidate, out=scratch), enter, out=by_enter)
        by_sigmoid(torch.mul(by_memory, self.memories[step], out=scratch), forget, out=by_forget)
        by_tanh(torch.mul(by_memory, enter, out=scratch), candidate, out=by_candidate)
        by_recurrent.copy_(by_gates)
        by_memory.mul_(forget)
        by_hidden.zero_()


STEPS: dict[type, type[GRUSteps] | type[LSTMSteps]] = {
    GRU: GRUSteps,
    LSTM: LSTMSteps,
    nn.GRU: GRUSteps,
    nn.LSTM: LSTMSteps,
}
