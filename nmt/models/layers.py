"""The layers that encoders and decoders are made of: embeddings, recurrent cells, self-attention, readouts."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nmt.text.tokenizer import PAD


@final
class Dropout(nn.Module):
    """x m / (1 - p) while training, each m being 0 with probability p, else 1  (Srivastava et al., 2014).

    If `shared`, all elements along an axis share one m. Along the steps of a sentence this is variational (locked)
    dropout; along the elements of an embedding it is word dropout  (Gal & Ghahramani, 2016).
    """

    def __init__(self, rate: float, *, shared: bool) -> None:
        super().__init__()
        self.p = rate
        self.shared = shared

    def forward(self, x: Float[Tensor, "*shape"], axis: int) -> Float[Tensor, "*shape"]:
        """Apply dropout; `axis` is the one along which m is shared, if `shared`."""
        if not self.training or not self.p:
            return x
        if not self.shared:
            return nn.functional.dropout(x, self.p)
        return x * nn.functional.dropout(torch.ones_like(x.narrow(axis, 0, 1)), self.p)


@final
class Embedding(nn.Embedding):
    """sqrt(d) E[token], E drawn from N(0, 1/d)  (Vaswani et al., 2017).

    Scaled, the network's inputs have unit variance and are learned in fewer updates, while the table keeps the scale
    that a tied output layer needs. Word dropout draws once per token, as Nematus does (Sennrich et al., 2017); Gal &
    Ghahramani draw once per word type.
    """

    def __init__(
        self, vocab_size: int, size: int, dropout: float, *, word_dropout: float = 0.0, locked: bool = False
    ) -> None:
        super().__init__(vocab_size, size, padding_idx=PAD)
        self.scale = math.sqrt(size)
        self.dropout = Dropout(dropout, shared=locked)
        self.word_dropout = Dropout(word_dropout, shared=True)

    @property
    def is_random(self) -> bool:
        """Whether equal words get different vectors, because of dropout."""
        return self.training and bool(self.dropout.p or self.word_dropout.p)

    def forward(self, tokens: Int[Tensor, "*tokens"], step_axis: int = 1) -> Float[Tensor, "*tokens embedding"]:
        """Embed tokens; the steps of a sentence, which share a mask of locked dropout, are along `step_axis`."""
        return self.word_dropout(self.dropout(super().forward(tokens) * self.scale, axis=step_axis), axis=-1)


class Cell(nn.Module, ABC):
    """h_t = cell(gates(x_t), h_{t-1}), the state being one tensor whatever the kind of cell.

    `inputs` maps an input to its contribution to the gates. A caller adds up the contributions of several inputs
    (embedding, context) before the step; only the first of them has a bias.
    """

    gates: int  # blocks of hidden_size in the gates
    parts: int  # blocks of hidden_size in the state

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size, self.state_size = hidden_size, self.parts * hidden_size
        self.inputs = nn.Linear(input_size, self.gates * hidden_size)
        self.recurrent = nn.Linear(hidden_size, self.gates * hidden_size, bias=False)

    def hidden(self, state: Float[Tensor, "*batch state"]) -> Float[Tensor, "*batch hidden"]:
        """Return the part of the state that other layers see."""
        return state if self.parts == 1 else state[..., : self.hidden_size]

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
        gates, candidate = gates.to(state.dtype).split(sizes, dim=-1)
        recurrent_gates, recurrent_candidate = self.recurrent(state).to(state.dtype).split(sizes, dim=-1)
        reset, update = (gates + recurrent_gates).sigmoid().chunk(2, dim=-1)
        candidate = torch.addcmul(candidate, reset, recurrent_candidate + self.candidate_bias).tanh()
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
        hidden, cell = state.chunk(2, dim=-1)
        gates = gates.to(state.dtype) + self.recurrent(hidden).to(state.dtype)
        gates, candidate = gates.split((3 * self.hidden_size, self.hidden_size), dim=-1)
        input_gate, forget_gate, output_gate = gates.sigmoid().chunk(3, dim=-1)
        cell = torch.addcmul(forget_gate * cell, input_gate, candidate.tanh())
        return torch.cat((output_gate * cell.tanh(), cell), dim=-1)


CELLS: dict[str, type[Cell]] = {"gru": GRU, "lstm": LSTM}


@final
class Stack(nn.Module):
    """A stack of recurrent cells. The first layer receives precomputed gates, the others their inputs."""

    def __init__(self, first: Cell, upper: list[Cell], dropout: float) -> None:
        super().__init__()
        self.first = first
        self.upper: Sequence[Cell] = nn.ModuleList(upper)  # type: ignore[assignment]
        self.dropout = nn.Dropout(dropout)

    @property
    def cells(self) -> list[Cell]:
        """The cells, from the first layer to the topmost."""
        return [self.first, *self.upper]

    def forward(
        self, gates: Float[Tensor, "*batch gates"], states: tuple[Float[Tensor, "*batch state"], ...]
    ) -> tuple[Float[Tensor, "*batch state"], ...]:
        """Update every layer; `gates` is the input's contribution to the first layer's gates."""
        new: list[Tensor] = [self.first(gates, states[0])]
        for cell, state in zip(self.upper, states[1:], strict=True):
            new.append(cell(cell.inputs(self.dropout(cell.hidden(new[-1]))), state))
        return tuple(new)

    def top(self, states: tuple[Float[Tensor, "*batch state"], ...]) -> Float[Tensor, "*batch hidden"]:
        """Return the hidden vector of the topmost layer."""
        return self.first.hidden(states[-1])


@final
class SelfAttention(nn.Module):
    """h + W [heads of softmax(q k / sqrt(d)) v] of LayerNorm(h)  (Vaswani et al., 2017), by torch's own kernel."""

    def __init__(self, size: int, num_heads: int, dropout: float, *, locked: bool = False) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.attention = nn.MultiheadAttention(size, num_heads, batch_first=True)
        self.dropout = Dropout(dropout, shared=locked)

    def forward(
        self, states: Float[Tensor, "batch source state"], source_mask: Bool[Tensor, "batch source"]
    ) -> Float[Tensor, "batch source state"]:
        """Let every state look at the others of its sentence."""
        normed = self.norm(states)
        attended, _ = self.attention(normed, normed, normed, key_padding_mask=~source_mask, need_weights=False)
        return states + self.dropout(attended, axis=1)


Hidden = Float[Tensor, "batch target hidden"]
Context = Float[Tensor, "batch target context"]
WordTerm = Float[Tensor, "batch target term"] | None
Features = Float[Tensor, "batch target feature"]


class Readout(nn.Module, ABC):
    """Computes the input features of the output layer, for any number of steps at once."""

    size: int  # of the features

    def project_word(self, embedded: Float[Tensor, "*words embedding"]) -> Float[Tensor, "*words term"] | None:
        """Return what an embedded word contributes to the features, or None if words do not enter them."""
        return None

    @abstractmethod
    def forward(self, hidden: Hidden, context: Context, word: WordTerm) -> Features:
        """Return the features; `word` is the result of `project_word` for the word that each step reads."""


class Mixed(Readout):
    """Readouts made of u = U s + V y + C c + b, the word's term V y computed beforehand."""

    blocks = 1  # numbers of u for each feature

    def __init__(
        self,
        hidden_size: int,
        context_size: int,
        embedding_size: int,
        size: int,
        dropout: float,
        *,
        locked: bool = False,
    ) -> None:
        super().__init__()
        self.size = size
        self.mixed = nn.ModuleDict(
            {
                "hidden": nn.Linear(hidden_size, self.blocks * size),
                "context": nn.Linear(context_size, self.blocks * size, bias=False),
                "embedded": nn.Linear(embedding_size, self.blocks * size, bias=False),
            }
        )
        self.dropout = Dropout(dropout, shared=locked)

    def project_word(self, embedded: Float[Tensor, "*words embedding"]) -> Float[Tensor, "*words term"]:
        return self.mixed["embedded"](embedded)

    def mix(self, hidden: Hidden, context: Context, word: WordTerm) -> Float[Tensor, "batch target mixed"]:
        """Return u."""
        return self.mixed["hidden"](hidden) + self.mixed["context"](context) + word


@final
class Maxout(Mixed):
    """t_j = max(u_j, u_{j+d}), of d numbers: the deep output of Bahdanau et al. (2015), up to the order of u.

    Their appendix writes s_{i-1} where we use s_i: g(y_{i-1}, s_i, c_i) of their equation 4 asks for it.
    """

    blocks = 2

    def forward(self, hidden: Hidden, context: Context, word: WordTerm) -> Features:
        first, second = self.mix(hidden, context, word).chunk(2, dim=-1)
        return self.dropout(torch.maximum(first, second), axis=0)


@final
class Linear(Mixed):
    """t = tanh(u)."""

    def forward(self, hidden: Hidden, context: Context, word: WordTerm) -> Features:
        return self.dropout(self.mix(hidden, context, word).tanh(), axis=0)


@final
class Attentional(Readout):
    """The attentional vector itself, which holds state and context already  (Luong et al., 2015).

    A linear map brings it to the embeddings' size where the output layer shares their weights.
    """

    def __init__(self, hidden_size: int, size: int, dropout: float, *, locked: bool = False) -> None:
        super().__init__()
        self.size = size
        self.resize = nn.Identity() if hidden_size == size else nn.Linear(hidden_size, size, bias=False)
        self.dropout = Dropout(dropout, shared=locked)

    def forward(self, hidden: Hidden, context: Context, word: WordTerm) -> Features:
        return self.resize(self.dropout(hidden, axis=0))


READOUTS: dict[str, type[Maxout] | type[Linear]] = {"maxout": Maxout, "linear": Linear}
