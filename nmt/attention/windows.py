"""Windows: which source positions a query may see, and how they are tapered."""

from abc import ABC, abstractmethod
from typing import final

from jaxtyping import Bool, Float
from torch import Tensor, nn


class Window(nn.Module, ABC):
    """Decides the support of attention, whatever the scores."""

    @abstractmethod
    def forward(
        self, query: Float[Tensor, "batch target query"], source_mask: Bool[Tensor, "batch source"], step: int
    ) -> tuple[Bool[Tensor, "batch #target source"], Float[Tensor, "batch target source"] | None]:
        """Return (support, taper).

        `support` is True where a position may be seen, and at least once in every row. `taper`, or None for
        none, multiplies the weights after normalization. `step` is the target position of the first query.
        """


@final
class Global(Window):
    """Every real token of the source  (Bahdanau et al., 2015)."""

    def forward(
        self, query: Float[Tensor, "batch target query"], source_mask: Bool[Tensor, "batch source"], step: int
    ) -> tuple[Bool[Tensor, "batch #target source"], Float[Tensor, "batch target source"] | None]:
        return source_mask[:, None], None


WINDOWS: dict[str, type[Window]] = {
    "global": Global,
}
