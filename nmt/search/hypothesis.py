"""The model that search needs (`StepModel`), and the hypotheses that it returns (`Hypothesis`)."""

import math
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor

Array = np.ndarray

# The ids of `nmt.text.tokenizer`, which search does not import: a model without subwords can be searched as well.
PAD, UNK, BOS, EOS = 0, 1, 2, 3
INFINITY = float("inf")
STEPS_BETWEEN_CHECKS = {"cpu": 1}  # for sentences that are done
STEPS_BETWEEN_CHECKS_ELSEWHERE = 4  # on a GPU a check waits for all that was launched before it
SIZES = 32  # different numbers of sentences in the course of a search: see `sentences_to_keep`


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """A translation as subword ids.

    Attributes:
        tokens: the ids, without eos.
        log_prob: log p(tokens, eos | source) in nats; without eos where the hypothesis was cut off at its maximal
            length.
        score: log_prob / length^alpha + beta sum_j log(min(1, sum_i a_ij)), as in `nmt.search.beam`; alpha is the
            length penalty, beta the coverage penalty, and length counts eos.
        weights: a_ij, the attention of output token i, including eos if there is one, to source token j, including
            special tokens but not padding.
    """

    tokens: list[int]
    log_prob: float
    score: float
    weights: Float32[Array, "target source"]

    @property
    def is_cut(self) -> bool:
        """Whether it has the maximal length and no eos: the translation has probably not come to its end."""
        return len(self.weights) == len(self.tokens)


S = TypeVar("S", bound="State")


@runtime_checkable
class State(Protocol):
    """A model's state for the hypotheses of a batch of sentences."""

    def select(self: S, beams: Int[Tensor, "batch k"]) -> S:
        """Return the state of k hypotheses of each sentence: indices into the beam axis, repeated or not."""

    def keep(self: S, sentences: Int[Tensor, " kept"]) -> S:
        """Return the state of some of the sentences: indices into the batch axis."""


@dataclass(frozen=True, eq=False)
class StepOutput(Generic[S]):
    """The output of a model's step: log-probabilities of the next token, and the attention of this step.

    Search overwrites `log_probs`.
    """

    log_probs: Float[Tensor, "batch beam vocab"]
    weights: Float[Tensor, "batch beam source"]
    state: S


@runtime_checkable
class StepModel(Protocol[S]):
    """Anything that can be searched: a translation model, an ensemble, a table of probabilities."""

    def start(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        source_lengths: Int[Tensor, " batch"],
    ) -> S:
        """Return the state before the first token, with one hypothesis per sentence."""

    def step(self, tokens: Int[Tensor, "batch beam"], state: S) -> StepOutput[S]:
        """Read the last token of each hypothesis and predict its next."""


def forbidden_tokens(unk: int | None, device: torch.device) -> Int[Tensor, " tokens"]:
    """Return the ids that are never produced."""
    return torch.tensor((PAD, BOS) if unk is None else (PAD, BOS, unk), device=device)


def steps_between_checks(device: torch.device) -> int:
    """Return after how many steps to look for sentences that are done."""
    return STEPS_BETWEEN_CHECKS.get(device.type, STEPS_BETWEEN_CHECKS_ELSEWHERE)


def sentences_to_keep(is_running: Bool[Tensor, " searched"], batch: int) -> Int[Tensor, " kept"]:
    """Return the indices of the sentences to go on with: those that run, and a few that are done.

    Their number is a multiple of a 32nd of the batch, rounded up, or they are all: few numbers of rows occur then, and
    oneDNN generates and keeps kernels for each. Results do not change.
    """
    multiple = math.ceil(batch / SIZES)
    count = math.ceil(int(is_running.sum()) / multiple) * multiple
    return is_running.int().argsort(descending=True, stable=True)[:count].sort().values
