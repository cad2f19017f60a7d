"""The recurrent cells of `nmt.models.layers`, step by step into prepared memory, with their derivatives."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.fast.arena import Arena
from nmt.fast.kernels import grad_sigmoid, grad_tanh, tanh_
from nmt.fast.linear import STEP, FusedLinear
from nmt.models.layers import GRU, LSTM, Cell

ParameterGrad = tuple[Tensor, Tensor]  # a parameter, and its gradient


class Recurrent(NamedTuple):
    """The recurrent parameters of a cell: W of all gates, and for a GRU the bias of U h + b in the candidate."""

    weight: Float[Tensor, "*direction gates hidden"]
    bias: Float[Tensor, "*direction hidden"] | None

    @classmethod
    def of(cls, cell: Cell) -> "Recurrent":
        """Return those of one of our cells."""
        return cls(cell.recurrent.weight, cell.candidate_bias if isinstance(cell, GRU) else None)


def state_buffer(
    arena: Arena, initial: Float[Tensor, "*direction row state"], steps: int
) -> tuple[Float[Tensor, "*direction step row state"], Float[Tensor, "*direction step row state"]]:
    """Return memory for the states before and after every step, which overlap; the initial state is filled in."""
    *directions, rows, size = initial.shape
    states = arena.take(*directions, steps + 1, rows, size, dtype=initial.dtype)
    states.select(STEP, 0).copy_(initial)
    return states.narrow(STEP, 0, steps), states.narrow(STEP, 1, steps)


class CellSteps(ABC):
    """after_t = cell(gates_t, before_t) for all steps; other maps that read before_t share the recurrent product."""

    def __init__(
        self,
        arena: Arena,
        recurrent: Recurrent,
        before: Float[Tensor, "*direction step row state"],
        after: Float[Tensor, "*direction step row state"],
        compute_dtype: torch.dtype,
        others: Sequence[Float[Tensor, "_ hidden"]] = (),
    ) -> None:
        self.weight, self.bias = recurrent
        num_gates, self.size = self.weight.shape[-2:]
        self.all_hidden = after[..., : self.size]
        self.hidden = self.all_hidden.unbind(STEP)
        self.maps = FusedLinear(arena, before[..., : self.size], [self.weight, *others], compute_dtype)
        self.hidden_before = self.maps.vectors
        self.all_gates = arena.take(*before.shape[:-1], num_gates, dtype=before.dtype)
        self.scratch = arena.take(*self.hidden[0].shape, dtype=before.dtype)
        self.prepare(arena, before, after)

    @abstractmethod
    def prepare(self, arena: Arena, before: Tensor, after: Tensor) -> None:
        """Take the memory that the cell needs besides, and make views of it step by step."""

    def read(self, step: int) -> tuple[Tensor, ...]:
        """Multiply before_t with the recurrent weights and the others'; return the others' results."""
        self.recurrent, *others = self.maps.forward(step)
        return tuple(others)

    @abstractmethod
    def update(self, step: int, gates: Float[Tensor, "*direction row gates"]) -> None:
        """Write after_t; `gates` is the inputs' share of the gates."""

    @abstractmethod
    def differentiate(
        self, step: int, grad_state: Float[Tensor, "*direction row state"], grad_gates: Tensor, grad_recurrent: Tensor
    ) -> None:
        """Turn `grad_state`, of after_t, into that of before_t but for the product; write the other two."""

    def backward_update(self, step: int, grad_state: Tensor, grad_gates: Tensor) -> None:
        """The backward of `update`: write the gradient of `gates`, and turn `grad_state` as `differentiate` does."""
        self.differentiate(step, grad_state, grad_gates, self.maps.slots[step][0])

    def backward_read(self, step: int, grad_state: Tensor, *grad_others: Tensor) -> None:
        """The backward of `read`: add the products' share to the gradient of before_t."""
        for slot, grad_other in zip(self.maps.slots[step][1:], grad_others, strict=True):
            slot.copy_(grad_other)
        grad_state[..., : self.size].add_(self.maps.backward(step))

    def grads(self) -> Iterator[ParameterGrad]:
        """Yield the gradients of the recurrent parameters."""
        yield self.weight, self.maps.grad_weights()[0]


@final
class GRUSteps(CellSteps):
    """Keeps r, z, n and U h + b of every step."""

    def prepare(self, arena: Arena, before: Tensor, after: Tensor) -> None:
        assert self.bias is not None
        self.candidate_bias = self.bias[..., None, :]
        self.sizes = (2 * self.size, self.size)
        openings, candidates = self.all_gates.split(self.sizes, dim=-1)
        self.openings, self.candidates = openings.unbind(STEP), candidates.unbind(STEP)
        self.resets, self.updates = (half.unbind(STEP) for half in openings.chunk(2, dim=-1))
        self.recurrent_candidates = arena.take(*before.shape, dtype=before.dtype).unbind(STEP)

    def update(self, step: int, gates: Float[Tensor, "*direction row gates"]) -> None:
        opening, candidate = self.openings[step], self.candidates[step]
        input_opening, input_candidate = gates.split_with_sizes(self.sizes, dim=-1)
        state_opening, state_candidate = self.recurrent.split_with_sizes(self.sizes, dim=-1)
        torch.add(input_opening, state_opening, out=opening).sigmoid_()
        recurrent = torch.add(state_candidate, self.candidate_bias, out=self.recurrent_candidates[step])
        tanh_(torch.addcmul(input_candidate, self.resets[step], recurrent, out=candidate))
        torch.lerp(candidate, self.hidden_before[step], self.updates[step], out=self.hidden[step])

    def differentiate(
        self, step: int, grad_state: Float[Tensor, "*direction row state"], grad_gates: Tensor, grad_recurrent: Tensor
    ) -> None:
        reset, update, candidate = self.resets[step], self.updates[step], self.candidates[step]
        scratch = self.scratch
        grad_opening, grad_candidate = grad_gates.split_with_sizes(self.sizes, dim=-1)
        grad_reset, grad_update = grad_opening.split_with_sizes((self.size, self.size), dim=-1)
        grad_state_opening, grad_state_candidate = grad_recurrent.split_with_sizes(self.sizes, dim=-1)
        torch.sub(self.hidden_before[step], candidate, out=scratch).mul_(grad_state)
        grad_sigmoid(scratch, update, out=grad_update)
        grad_tanh(torch.addcmul(grad_state, grad_state, update, value=-1.0, out=scratch), candidate, out=grad_candidate)
        grad_sigmoid(torch.mul(grad_candidate, self.recurrent_candidates[step], out=scratch), reset, out=grad_reset)
        grad_state_opening.copy_(grad_opening)
        torch.mul(grad_candidate, reset, out=grad_state_candidate)
        grad_state.mul_(update)

    def grads(self) -> Iterator[ParameterGrad]:
        yield from super().grads()
        assert self.bias is not None
        yield self.bias, self.maps.grad_bias()[..., 2 * self.size : 3 * self.size]


@final
class LSTMSteps(CellSteps):
    """Keeps i, f, o, the candidate and tanh c' of every step."""

    def prepare(self, arena: Arena, before: Tensor, after: Tensor) -> None:
        self.gates = self.all_gates.unbind(STEP)
        self.openings = self.all_gates[..., : 3 * self.size].unbind(STEP)
        self.blocks = list(zip(*(block.unbind(STEP) for block in self.all_gates.chunk(4, dim=-1)), strict=True))
        self.memories = before[..., self.size :].unbind(STEP)
        self.new_memories = after[..., self.size :].unbind(STEP)
        self.squashed = arena.take(*self.all_hidden.shape, dtype=before.dtype).unbind(STEP)

    def update(self, step: int, gates: Float[Tensor, "*direction row gates"]) -> None:
        torch.add(gates, self.recurrent, out=self.gates[step])
        self.openings[step].sigmoid_()
        enter, forget, out, candidate = self.blocks[step]
        memory = torch.mul(forget, self.memories[step], out=self.new_memories[step])
        memory.addcmul_(enter, tanh_(candidate))
        torch.mul(out, tanh_(self.squashed[step].copy_(memory)), out=self.hidden[step])

    def differentiate(
        self, step: int, grad_state: Float[Tensor, "*direction row state"], grad_gates: Tensor, grad_recurrent: Tensor
    ) -> None:
        enter, forget, out, candidate = self.blocks[step]
        grad_enter, grad_forget, grad_out, grad_candidate = grad_gates.chunk(4, dim=-1)
        grad_hidden, grad_memory = grad_state.chunk(2, dim=-1)
        squashed, scratch = self.squashed[step], self.scratch
        grad_sigmoid(torch.mul(grad_hidden, squashed, out=scratch), out, out=grad_out)
        grad_tanh(torch.mul(grad_hidden, out, out=scratch), squashed, out=scratch)
        grad_memory.add_(scratch)
        grad_sigmoid(torch.mul(grad_memory, candidate, out=scratch), enter, out=grad_enter)
        grad_sigmoid(torch.mul(grad_memory, self.memories[step], out=scratch), forget, out=grad_forget)
        grad_tanh(torch.mul(grad_memory, enter, out=scratch), candidate, out=grad_candidate)
        grad_recurrent.copy_(grad_gates)
        grad_memory.mul_(forget)
        grad_hidden.zero_()


STEPS: dict[type, type[GRUSteps] | type[LSTMSteps]] = {
    GRU: GRUSteps,
    LSTM: LSTMSteps,
    nn.GRU: GRUSteps,
    nn.LSTM: LSTMSteps,
}
