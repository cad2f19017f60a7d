"""Readouts: from a decoder's state, context and last word to the input of the output layer."""

from abc import ABC, abstractmethod
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor, nn

Hidden = Float[Tensor, "batch target hidden"]
Context = Float[Tensor, "batch target context"]
Word = Float[Tensor, "batch target share"] | None
Features = Float[Tensor, "batch target feature"]


class Readout(nn.Module, ABC):
    """Makes the features that the output layer scores the vocabulary with, for any number of steps at once.

    Attributes:
        size: size of the features.
    """

    size: int

    def project_word(self, embedded: Float[Tensor, "*words embedding"]) -> Float[Tensor, "*words share"] | None:
        """Return the share of an embedded word in the features, or None where a word has none."""
        return None

    @abstractmethod
    def forward(self, hidden: Hidden, context: Context, word: Word) -> Features:
        """Return the features; `word` is the result of `project_word` for the word that each step reads."""


class Mixed(Readout):
    """Readouts made of u = U s + V y + C c + b, the word's share V y computed beforehand."""

    def __init__(
        self, hidden_size: int, context_size: int, embedding_size: int, size: int, dropout: float, *, blocks: int = 1
    ) -> None:
        super().__init__()
        self.size = size
        self.mixed = nn.ModuleDict(
            {
                "hidden": nn.Linear(hidden_size, blocks * size),
                "context": nn.Linear(context_size, blocks * size, bias=False),
                "embedded": nn.Linear(embedding_size, blocks * size, bias=False),
            }
        )
        self.dropout = nn.Dropout(dropout)

    def project_word(self, embedded: Float[Tensor, "*words embedding"]) -> Float[Tensor, "*words share"]:
        share: Tensor = self.mixed["embedded"](embedded)
        return share

    def mix(self, hidden: Hidden, context: Context, word: Word) -> Float[Tensor, "batch target mixed"]:
        """Return u."""
        mixed: Tensor = self.mixed["hidden"](hidden) + self.mixed["context"](context) + word
        return mixed


@final
class Maxout(Mixed):
    """t_j = max(u_{2j-1}, u_{2j}): the deep output of Bahdanau et al. (2015).

    Their appendix writes s_{i-1} where we use s_i: g(y_{i-1}, s_i, c_i) of their equation 4 asks for it.
    """

    def __init__(self, hidden_size: int, context_size: int, embedding_size: int, size: int, dropout: float) -> None:
        super().__init__(hidden_size, context_size, embedding_size, size, dropout, blocks=2)

    def forward(self, hidden: Hidden, context: Context, word: Word) -> Features:
        first, second = self.mix(hidden, context, word).chunk(2, dim=-1)
        features: Tensor = self.dropout(torch.maximum(first, second))
        return features


@final
class Linear(Mixed):
    """t = tanh(u)."""

    def forward(self, hidden: Hidden, context: Context, word: Word) -> Features:
        features: Tensor = self.dropout(self.mix(hidden, context, word).tanh())
        return features


@final
class Attentional(Readout):
    """The attentional vector itself, which holds state and context already  (Luong et al., 2015).

    A linear map brings it to the embeddings' size where the output layer shares their weights.
    """

    def __init__(self, hidden_size: int, size: int, dropout: float) -> None:
        super().__init__()
        self.size = size
        self.resize = nn.Identity() if hidden_size == size else nn.Linear(hidden_size, size, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Hidden, context: Context, word: Word) -> Features:
        features: Tensor = self.resize(self.dropout(hidden))
        return features


READOUTS: dict[str, type[Maxout] | type[Linear]] = {"maxout": Maxout, "linear": Linear}
