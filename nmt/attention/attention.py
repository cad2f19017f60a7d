"""Attention as the composition score x normalizer x window: the only place where scores are masked."""

from typing import NamedTuple, final

from jaxtyping import Bool, Float
from torch import Tensor, nn

from nmt.attention.normalizers import NORMALIZERS, Normalizer
from nmt.attention.scores import SCORES, Score
from nmt.attention.windows import WINDOWS, Window
from nmt.errors import unknown


class Memory(NamedTuple):
    """What can be attended to: projected once a sentence, the same at every step."""

    keys: Float[Tensor, "batch source key"]
    values: Float[Tensor, "batch source value"]
    mask: Bool[Tensor, "batch source"]

    def keep(self, sentences: Tensor) -> "Memory":
        """Return the memory of some of the sentences (indices into the batch axis)."""
        return Memory(self.keys[sentences], self.values[sentences], self.mask[sentences])


class Attended(NamedTuple):
    """The result of a query: the expectation of the values under the weights."""

    context: Float[Tensor, "batch target value"]
    weights: Float[Tensor, "batch target source"]
    scores: Float[Tensor, "batch target source"]


@final
class Attention(nn.Module):
    """context = E_p[values], p = normalizer(score(query, keys)) on the window's support.

    A query has a target axis, `[batch, target, query]`; one decoding step is target = 1, and in beam search
    the hypotheses of a sentence are its targets, so that memory is never repeated.
    """

    def __init__(self, score: Score, normalizer: Normalizer, window: Window) -> None:
        super().__init__()
        self.score = score
        self.normalizer = normalizer
        self.window = window

    def remember(
        self, states: Float[Tensor, "batch source state"], source_mask: Bool[Tensor, "batch source"]
    ) -> Memory:
        """Project the encoder's states into keys and values, once a sentence."""
        return Memory(self.score.project(states), states, source_mask)

    def forward(self, query: Float[Tensor, "batch target query"], memory: Memory, step: int = 0) -> Attended:
        scores = self.score(query, memory.keys)
        support, taper = self.window(query, memory.mask, step)
        weights = self.normalizer(scores.masked_fill(~support, float("-inf")))
        if taper is not None:
            weights = weights * taper
        return Attended(weights @ memory.values, weights, scores)


def build_attention(
    score: str, normalizer: str, window: str, *, query_size: int, state_size: int, size: int
) -> Attention:
    """Compose an attention from the names of its parts.

    Raises:
        UserError: a name is not in its registry, or the sizes do not fit the score.
    """
    check_names(score, normalizer, window)
    return Attention(SCORES[score](query_size, state_size, size), NORMALIZERS[normalizer](), WINDOWS[window]())


def check_names(score: str, normalizer: str, window: str) -> None:
    """Raise UserError, with the choices and the nearest of them, for a name that is in no registry."""
    named = (("score", score, SCORES), ("normalizer", normalizer, NORMALIZERS), ("window", window, WINDOWS))
    for part, name, registry in named:
        if name not in registry:
            raise unknown(f"model.attention.{part}", name, registry)
