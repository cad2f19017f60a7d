"""Recurrent cells in two halves, so that what does not depend on the previous step is computed for all at once."""

from abc import ABC, abstractmethod
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Cell(nn.Module, ABC):
    """h_t = cell(gates(x_t), h_{t-1}), the state being one tensor whatever the kind of cell.

    `inputs` maps an input to its share of the gates; a caller adds up the shares of several inputs (embedding,
    context) before the step. Biases are in the first share only.
    """

    gates: int  # blocks of hidden_size in the gates
    parts: int  # blocks of hidden_size in the state

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.inputs = nn.Linear(input_size, self.gates * hidden_size)
        self.recurrent = nn.Linear(hidden_size, self.gates * hidden_size, bias=False)

    @property
    def state_size(self) -> int:
        """Size of the state."""
        return self.parts * self.hidden_size

    def hidden(self, state: Float[Tensor, "*batch state"]) -> Float[Tensor, "*batch hidden"]:
        """Return the part of the state that other layers see."""
        return state[..., : self.hidden_size]

    @abstractmethod
    def forward(
        self, gates: Float[Tensor, "*batch gates"], state: Float[Tensor, "*batch state"]
    ) -> Float[Tensor, "*batch state"]:
        """Update the state."""


@final
class GRU(Cell):
    """r, z = sigma(.), n = tanh(x_n + r * (U h + b)), h' = n + z * (h - n)  (Cho et al., 2014; reset as in cuDNN)."""

    gates = 3
    parts = 1

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.candidate_bias = nn.Parameter(torch.zeros(hidden_size))

    def forward(
        self, gates: Float[Tensor, "*batch gates"], state: Float[Tensor, "*batch state"]
    ) -> Float[Tensor, "*batch state"]:
        sizes = (2 * self.hidden_size, self.hidden_size)
        open_input, candidate_input = gates.to(state.dtype).split(sizes, dim=-1)
        open_recurrent, candidate_recurrent = self.recurrent(state).to(state.dtype).split(sizes, dim=-1)
        reset, update = (open_input + open_recurrent).sigmoid().chunk(2, dim=-1)
        candidate = torch.addcmul(candidate_input, reset, candidate_recurrent + self.candidate_bias).tanh()
        return torch.lerp(candidate, state, update)


@final
class LSTM(Cell):
    """i, f, o = sigma(.), c' = f * c + i * tanh(.), h' = o * tanh(c')  (Hochreiter & Schmidhuber, 1997).

    With the forget gate of Gers et al. (2000). The state is [h; c].
    """

    gates = 4
    parts = 2

    def forward(
        self, gates: Float[Tensor, "*batch gates"], state: Float[Tensor, "*batch state"]
    ) -> Float[Tensor, "*batch state"]:
        hidden, memory = state.chunk(2, dim=-1)
        gates = (gates + self.recurrent(hidden)).to(state.dtype)
        opening, candidate = gates.split((3 * self.hidden_size, self.hidden_size), dim=-1)
        enter, forget, out = opening.sigmoid().chunk(3, dim=-1)
        memory = torch.addcmul(forget * memory, enter, candidate.tanh())
        return torch.cat((out * memory.tanh(), memory), dim=-1)


CELLS: dict[str, type[Cell]] = {"gru": GRU, "lstm": LSTM}
