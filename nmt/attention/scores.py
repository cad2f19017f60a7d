"""Scores: how well a query matches each key. A new one is a class here and a line in `SCORES`."""

import math
from abc import ABC, abstractmethod
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.errors import UserError


class Score(nn.Module, ABC):
    """A compatibility function between queries and keys. It neither masks nor normalizes."""

    @abstractmethod
    def __init__(self, query_size: int, state_size: int, size: int) -> None:
        super().__init__()

    @abstractmethod
    def project(self, states: Float[Tensor, "batch source state"]) -> Float[Tensor, "batch source key"]:
        """Make the keys of a sentence, once, whatever the number of queries that follow."""

    @abstractmethod
    def forward(
        self, query: Float[Tensor, "batch target query"], keys: Float[Tensor, "batch source key"]
    ) -> Float[Tensor, "batch target source"]:
        """Score every query against every key."""


@final
class Additive(Score):
    """v . tanh(Wq q + Wk k + b)  (Bahdanau et al., 2015).

    Luong's `concat`, v . tanh(W [q; k]), is the same function with Wq and Wk stacked into W.
    """

    def __init__(self, query_size: int, state_size: int, size: int) -> None:
        super().__init__(query_size, state_size, size)
        self.query = nn.Linear(query_size, size, bias=False)
        self.key = nn.Linear(state_size, size)
        self.energy = nn.Linear(size, 1, bias=False)

    def project(self, states: Float[Tensor, "batch source state"]) -> Float[Tensor, "batch source key"]:
        return self.key(states)

    def forward(
        self, query: Float[Tensor, "batch target query"], keys: Float[Tensor, "batch source key"]
    ) -> Float[Tensor, "batch target source"]:
        combined = self.query(query)[:, :, None] + keys[:, None]  # [batch, target, source, size]
        return torch.tanh(combined) @ self.energy.weight[0]


@final
class Dot(Score):
    """q . k  (Luong et al., 2015). The states are the keys, so the sizes must agree."""

    def __init__(self, query_size: int, state_size: int, size: int) -> None:
        super().__init__(query_size, state_size, size)
        check_equal("dot", query_size, state_size)

    def project(self, states: Float[Tensor, "batch source state"]) -> Float[Tensor, "batch source key"]:
        return states

    def forward(
        self, query: Float[Tensor, "batch target query"], keys: Float[Tensor, "batch source key"]
    ) -> Float[Tensor, "batch target source"]:
        return query @ keys.transpose(1, 2)


@final
class ScaledDot(Score):
    """q . k / sqrt(d), d the size of both  (Vaswani et al., 2017)."""

    def __init__(self, query_size: int, state_size: int, size: int) -> None:
        super().__init__(query_size, state_size, size)
        check_equal("scaled_dot", query_size, state_size)
        self.scale = 1.0 / math.sqrt(state_size)

    def project(self, states: Float[Tensor, "batch source state"]) -> Float[Tensor, "batch source key"]:
        return states

    def forward(
        self, query: Float[Tensor, "batch target query"], keys: Float[Tensor, "batch source key"]
    ) -> Float[Tensor, "batch target source"]:
        return (query * self.scale) @ keys.transpose(1, 2)


@final
class General(Score):
    """q . W k  (Luong et al., 2015), W applied to the states once a sentence."""

    def __init__(self, query_size: int, state_size: int, size: int) -> None:
        super().__init__(query_size, state_size, size)
        self.key = nn.Linear(state_size, query_size, bias=False)

    def project(self, states: Float[Tensor, "batch source state"]) -> Float[Tensor, "batch source key"]:
        return self.key(states)

    def forward(
        self, query: Float[Tensor, "batch target query"], keys: Float[Tensor, "batch source key"]
    ) -> Float[Tensor, "batch target source"]:
        return query @ keys.transpose(1, 2)


def check_equal(name: str, query_size: int, state_size: int) -> None:
    """Raise UserError when a score without projection is given sizes that differ."""
    if query_size != state_size:
        raise UserError(
            f"model.attention.score={name} needs queries and encoder states of one size, "
            f"but they have {query_size} and {state_size}: use general or additive, which project"
        )


SCORES: dict[str, type[Score]] = {
    "additive": Additive,
    "concat": Additive,
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "general": General,
}
