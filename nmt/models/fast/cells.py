"""The recurrent cells of `nmt.models.cells`, step by step into prepared memory, with their derivatives."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.models.cells import GRU, LSTM, Cell
from nmt.models.fast.arena import Arena
from nmt.models.fast.functions import by_sigmoid, by_tanh, tanh_
from nmt.models.fast.product import Readers

Gradient = tuple[Tensor, Tensor]  # a parameter, and its gradient


class Recurrent(NamedTuple):
    """What a cell multiplies its state with: W of all gates, and for a GRU the bias of U h + b in the candidate."""

    weight: Float[Tensor, "gates hidden"]
    bias: Float[Tensor, " hidden"] | None

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
        before: Float[Tensor, "step row state"],
        after: Float[Tensor, "step row state"],
        kind: torch.dtype,
        others: Sequence[Tensor] = (),
    ) -> None:
        self.weight, self.bias = recurrent
        num_gates, self.size = self.weight.shape
        self.before = before
        self.after = after
        self.readers = Readers(arena, before[..., : self.size], [self.weight, *others], kind)
        steps, rows, _ = before.shape
        self.gates = arena.take(steps, rows, num_gates, dtype=before.dtype)
        self.scratch = arena.take(rows, self.size, dtype=before.dtype)

    def read(self, step: int) -> tuple[Tensor, ...]:
        """Multiply before_t with the recurrent weights and the others'; return the others' results."""
        self.recurrent, *others = self.readers.forward(step)
        return tuple(others)

    @abstractmethod
    def update(self, step: int, gates: Float[Tensor, "row gates"]) -> None:
        """Write after_t; `gates` is the inputs' share of the gates."""

    @abstractmethod
    def differentiate(
        self, step: int, by_state: Float[Tensor, "row state"], by_gates: Tensor, by_recurrent: Tensor
    ) -> None:
        """Turn `by_state` from the gradient of after_t into before_t's, but for the product; write the others."""

    def backward_update(self, step: int, by_state: Tensor, by_gates: Tensor) -> None:
        """The backward of `update`: write the gradient of `gates`, and turn `by_state` as `differentiate` does."""
        self.differentiate(step, by_state, by_gates, self.readers.slots(step)[0])

    def backward_read(self, step: int, by_state: Tensor, *by_others: Tensor) -> None:
        """The backward of `read`: add what before_t owes to the products."""
        for slot, by_other in zip(self.readers.slots(step)[1:], by_others, strict=True):
            slot.copy_(by_other)
        by_state[:, : self.size].add_(self.readers.backward(step))

    def gradients(self) -> Iterator[Gradient]:
        """Yield the gradients of the recurrent parameters."""
        yield self.weight, self.readers.gradients()[0]


@final
class GRUSteps(CellSteps):
    """Keeps r, z, n and U h + b of every step."""

    parts = 1

    def __init__(self, arena: Arena, recurrent: Recurrent, before: Tensor, after: Tensor, *arguments: object) -> None:
        super().__init__(arena, recurrent, before, after, *arguments)  # type: ignore[arg-type]
        self.recurrent_candidates = arena.take(*before.shape[:2], self.size, dtype=before.dtype)

    def update(self, step: int, gates: Float[Tensor, "row gates"]) -> None:
        opened, size = 2 * self.size, self.size
        opening, candidate = self.gates[step].split((opened, size), dim=1)
        torch.add(gates[:, :opened], self.recurrent[:, :opened], out=opening).sigmoid_()
        assert self.bias is not None
        recurrent = torch.add(self.recurrent[:, opened:], self.bias, out=self.recurrent_candidates[step])
        tanh_(torch.addcmul(gates[:, opened:], opening[:, :size], recurrent, out=candidate))
        torch.lerp(candidate, self.before[step], opening[:, size:], out=self.after[step])

    def differentiate(
        self, step: int, by_state: Float[Tensor, "row state"], by_gates: Tensor, by_recurrent: Tensor
    ) -> None:
        reset, update, candidate = self.gates[step].chunk(3, dim=1)
        by_reset, by_update, by_candidate = by_gates.chunk(3, dim=1)
        opened = 2 * self.size
        by_sigmoid(torch.sub(self.before[step], candidate, out=self.scratch).mul_(by_state), update, out=by_update)
        by_tanh(torch.addcmul(by_state, by_state, update, value=-1.0, out=self.scratch), candidate, out=by_candidate)
        by_sigmoid(torch.mul(by_candidate, self.recurrent_candidates[step], out=self.scratch), reset, out=by_reset)
        by_recurrent[:, :opened].copy_(by_gates[:, :opened])
        torch.mul(by_candidate, reset, out=by_recurrent[:, opened:])
        by_state.mul_(update)

    def gradients(self) -> Iterator[Gradient]:
        yield from super().gradients()
        assert self.bias is not None
        by_recurrent = self.readers.by_outputs[..., 2 * self.size : 3 * self.size]
        yield self.bias, by_recurrent.sum(dim=(0, 1), dtype=self.bias.dtype)


@final
class LSTMSteps(CellSteps):
    """Keeps i, f, o, the candidate and tanh c' of every step."""

    parts = 2

    def __init__(self, arena: Arena, recurrent: Recurrent, before: Tensor, after: Tensor, *arguments: object) -> None:
        super().__init__(arena, recurrent, before, after, *arguments)  # type: ignore[arg-type]
        self.shown = arena.take(*before.shape[:2], self.size, dtype=before.dtype)

    def update(self, step: int, gates: Float[Tensor, "row gates"]) -> None:
        size = self.size
        torch.add(gates, self.recurrent, out=self.gates[step])
        opening, candidate = self.gates[step].split((3 * size, size), dim=1)
        enter, forget, out = opening.sigmoid_().chunk(3, dim=1)
        hidden, memory = self.after[step].chunk(2, dim=1)
        torch.mul(forget, self.before[step, :, size:], out=memory).addcmul_(enter, tanh_(candidate))
        torch.mul(out, tanh_(self.shown[step].copy_(memory)), out=hidden)

    def differentiate(
        self, step: int, by_state: Float[Tensor, "row state"], by_gates: Tensor, by_recurrent: Tensor
    ) -> None:
        enter, forget, out, candidate = self.gates[step].chunk(4, dim=1)
        by_enter, by_forget, by_out, by_candidate = by_gates.chunk(4, dim=1)
        by_hidden, by_memory = by_state.chunk(2, dim=1)
        shown, scratch = self.shown[step], self.scratch
        by_sigmoid(torch.mul(by_hidden, shown, out=scratch), out, out=by_out)
        by_tanh(torch.mul(by_hidden, out, out=scratch), shown, out=scratch)
        by_memory.add_(scratch)
        by_sigmoid(torch.mul(by_memory, candidate, out=scratch), enter, out=by_enter)
        by_sigmoid(torch.mul(by_memory, self.before[step, :, self.size :], out=scratch), forget, out=by_forget)
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
