"""What search asks of a model, and what it returns."""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor

Array = np.ndarray

# The ids of `nmt.text.tokenizer`, which search does not import: a model without subwords can be searched as well.
PAD, UNK, BOS, EOS = 0, 1, 2, 3


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """A translation as subword ids.

    Attributes:
        tokens: the ids without eos.
        log_prob: log p(tokens, eos | source); without eos if the hypothesis was cut off at its maximal length.
        score: log_prob / (number of tokens, eos in) ** length_penalty.
        weights: attention, a row for each token and for eos (cut off: no row for eos), over the sentence's own
            source tokens, eos in.
    """

    tokens: list[int]
    log_prob: float
    score: float
    weights: Float32[Array, "target source"]


S = TypeVar("S", bound="State")


@runtime_checkable
class State(Protocol):
    """What a model remembers of the hypotheses of a batch."""

    def select(self: S, beams: Int[Tensor, "batch k"]) -> S:
        """Go on with k hypotheses of each sentence: indices into the beam axis."""

    def keep(self: S, sentences: Int[Tensor, " kept"]) -> S:
        """Go on with some of the sentences: indices into the batch axis."""


@dataclass(frozen=True, eq=False)
class Step(Generic[S]):
    """One step of a model: log-probabilities of the next token, and the attention that they come from.

    The search overwrites `log_probs`.
    """

    log_probs: Float[Tensor, "batch beam vocab"]
    weights: Float[Tensor, "batch beam source"]
    state: S


@runtime_checkable
class StepModel(Protocol[S]):
    """Anything that can be searched: a translation model, an ensemble of them, a table of probabilities."""

    def start(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        source_lengths: Int[Tensor, " batch"],
    ) -> S:
        """Return the state before the first token, with one hypothesis a sentence."""

    def step(self, tokens: Int[Tensor, "batch beam"], state: S) -> Step[S]:
        """Read the last token of each hypothesis and give the probabilities of its next."""
