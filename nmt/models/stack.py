"""Layers of recurrent cells."""

from typing import final

from torch import Tensor, nn

from nmt.models.cells import Cell


@final
class Stack(nn.Module):
    """Layers of recurrent cells, one above the other; the first is given its gates, the others their input."""

    def __init__(self, first: Cell, upper: list[Cell], dropout: float) -> None:
        super().__init__()
        self.first = first
        self.upper = nn.ModuleList(upper)
        self.dropout = nn.Dropout(dropout)

    @property
    def cells(self) -> list[Cell]:
        """The cells, from the first layer to the topmost."""
        return [self.first, *(cell for cell in self.upper if isinstance(cell, Cell))]

    def forward(self, gates: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Update every layer; `gates` is the input's share of the first layer's gates."""
        new: list[Tensor] = [self.first(gates, states[0])]
        for cell, state in zip(self.cells[1:], states[1:], strict=True):
            new.append(cell(cell.inputs(self.dropout(cell.hidden(new[-1]))), state))
        return tuple(new)

    def top(self, states: tuple[Tensor, ...]) -> Tensor:
        """Return the hidden vector of the topmost layer."""
        return self.first.hidden(states[-1])
