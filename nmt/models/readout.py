"""Readouts: from a decoder's state, context and last word to the input of the output layer."""

from abc import ABC, abstractmethod
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.models.dropout import Dropout
from nmt.models.embedding import Embedded

Hidden = Float[Tensor, "batch target hidden"]
Context = Float[Tensor, "batch target context"]
Features = Float[Tensor, "batch target feature"]


class Readout(nn.Module, ABC):
    """Makes the features that the output layer scores the vocabulary with, for any number of steps at once."""

    @abstractmethod
    def forward(self, hidden: Hidden, context: Context, embedded: Embedded) -> Features:
        """Return the features."""


class Mixed(nn.Module):
    """U s + V y + C c + b: one linear map of the three, without copying them side by side."""

    def __init__(self, hidden_size: int, context_size: int, embedding_size: int, size: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(hidden_size, size)
        self.context = nn.Linear(context_size, size, bias=False)
        self.embedded = nn.Linear(embedding_size, size, bias=False)

    def forward(self, hidden: Tensor, context: Tensor, embedded: Embedded) -> Tensor:
        return self.hidden(hidden) + self.context(context) + embedded.map(self.embedded)


@final
class Maxout(Readout):
    """t_j = max(u_{2j-1}, u_{2j}), u = U s + V y + C c: the deep output of Bahdanau et al. (2015).

    Their appendix writes s_{i-1} where we use s_i: g(y_{i-1}, s_i, c_i) of their equation 4 asks for it.
    """

    def __init__(self, hidden_size: int, context_size: int, embedding_size: int, size: int, dropout: float) -> None:
        super().__init__()
        self.mixed = Mixed(hidden_size, context_size, embedding_size, 2 * size)
        self.dropout = Dropout(dropout)

    def forward(self, hidden: Hidden, context: Context, embedded: Embedded) -> Features:
        first, second = self.mixed(hidden, context, embedded).chunk(2, dim=-1)
        return self.dropout(torch.maximum(first, second))


@final
class Linear(Readout):
    """t = tanh(U s + V y + C c)."""

    def __init__(self, hidden_size: int, context_size: int, embedding_size: int, size: int, dropout: float) -> None:
        super().__init__()
        self.mixed = Mixed(hidden_size, context_size, embedding_size, size)
        self.dropout = Dropout(dropout)

    def forward(self, hidden: Hidden, context: Context, embedded: Embedded) -> Features:
        return self.dropout(self.mixed(hidden, context, embedded).tanh())


@final
class Attentional(Readout):
    """The attentional vector itself, which holds state and context already  (Luong et al., 2015).

    A linear map brings it to the embeddings' size where the output layer shares their weights.
    """

    def __init__(self, hidden_size: int, size: int, dropout: float) -> None:
        super().__init__()
        self.resize = nn.Identity() if hidden_size == size else nn.Linear(hidden_size, size, bias=False)
        self.dropout = Dropout(dropout)

    def forward(self, hidden: Hidden, context: Context, embedded: Embedded) -> Features:
        features: Tensor = self.resize(self.dropout(hidden))
        return features


READOUTS: dict[str, type[Maxout] | type[Linear]] = {"maxout": Maxout, "linear": Linear}
