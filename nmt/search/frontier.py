"""The frontier of a beam search, and the rules by which it advances from one target position to the next."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nmt.search.continuations import best_continuations
from nmt.search.history import Candidates, Finished

INFINITY = float("inf")
MIN_ATTENTION = 1e-10  # bounds the coverage penalty of a source token that received none at 23 beta


class Frontier(NamedTuple):
    """For each sentence the hypotheses in the beam, which are still to be extended, and the best finished ones.

    A sentence with no hypothesis in the beam is done.

    Attributes:
        tokens: the last token of each hypothesis.
        log_probs: log-probability of each hypothesis; -inf marks an empty place.
        finished: the best finished hypotheses.
        max_lengths: most tokens of a hypothesis, including eos.
        received: attention that each source token has received from each hypothesis, 1 more on padding; None where
            there is no coverage penalty.
    """

    tokens: Int[Tensor, "batch beam"]
    log_probs: Float[Tensor, "batch beam"]
    finished: Finished
    max_lengths: Int[Tensor, " batch"]
    received: Float[Tensor, "batch beam source"] | None

    def keep(self, sentences: Int[Tensor, " kept"]) -> "Frontier":
        """Return the frontier of some of the sentences."""
        received = None if self.received is None else self.received[sentences]
        finished, limits = self.finished.keep(sentences), self.max_lengths[sentences]
        return Frontier(self.tokens[sentences], self.log_probs[sentences], finished, limits, received)

    def running(self) -> Int[Tensor, " kept"]:
        """Return the indices of the sentences that are not done."""
        return (self.log_probs > -INFINITY).any(1).nonzero()[:, 0]


class Rules(NamedTuple):
    """Settings of a beam search, as in `beam_search`, and the choice that it makes by them at each step."""

    beam_size: int
    n_best: int
    length_penalty: float
    coverage_penalty: float
    bos: int
    eos: int
    forbidden: tuple[int, ...]

    def first(self, source_mask: Bool[Tensor, "batch source"], max_lengths: Int[Tensor, " batch"]) -> Frontier:
        """Return the frontier of one hypothesis per sentence, the empty one."""
        shape, device = (len(source_mask), self.beam_size), source_mask.device
        log_probs = torch.full(shape, -INFINITY, device=device)
        log_probs[:, 0] = 0.0
        tokens = torch.full(shape, self.bos, dtype=torch.long, device=device)
        received = (~source_mask).double()[:, None].repeat(1, self.beam_size, 1) if self.coverage_penalty else None
        return Frontier(tokens, log_probs, Finished.none(*shape, device), max_lengths.to(device), received)

    def advance(
        self,
        frontier: Frontier,
        log_probs: Float[Tensor, "batch beam vocab"],
        weights: Float[Tensor, "batch beam source"],
        step: int,
    ) -> tuple[Frontier, Candidates]:
        """Extend every hypothesis by a token, given the model's log-probabilities and attention at this step.

        Returns:
            the next frontier, and the candidates that it was chosen from.
        """
        # At most `beam_size` of the candidates are eos, one per hypothesis, so enough are left to fill the beam.
        best, beams, tokens = best_continuations(frontier.log_probs, log_probs, 2 * self.beam_size)
        is_end = (tokens == self.eos) | (frontier.max_lengths == step + 1)[:, None]
        received = None if frontier.received is None else frontier.received + weights
        scores = best / (step + 1) ** self.length_penalty
        if received is not None:
            scores = scores + self.coverage(received).to(frontier.log_probs.dtype).gather(1, beams)
        finished = frontier.finished.add(scores.where(is_end, -INFINITY)[:, : self.beam_size], step)
        # A stable sort: ties and empty places keep their order.
        running, chosen = best.where(~is_end, -INFINITY).sort(dim=1, descending=True, stable=True)
        running, chosen = running[:, : self.beam_size], chosen[:, : self.beam_size]
        running = running.where(~self.is_done(running, finished, frontier.max_lengths)[:, None], -INFINITY)
        candidates = Candidates(beams, tokens, best, chosen)
        if received is not None:
            received = received.gather(1, candidates.parents[:, :, None].expand(-1, -1, received.shape[2]))
        return Frontier(tokens.gather(1, chosen), running, finished, frontier.max_lengths, received), candidates

    def coverage(self, received: Float[Tensor, "batch beam source"]) -> Float[Tensor, "batch beam"]:
        """Return beta sum_j log(min(1, sum_i a_ij)), at most 0."""
        return self.coverage_penalty * received.clamp(MIN_ATTENTION, 1.0).log().sum(dim=2)

    def is_done(
        self, running: Float[Tensor, "batch beam"], finished: Finished, max_lengths: Int[Tensor, " batch"]
    ) -> Bool[Tensor, " batch"]:
        """Tell which sentences need no further step, given the log-probabilities in the beam, best first."""
        bound = running[:, 0] / max_lengths.double() ** self.length_penalty
        return (finished.scores[:, self.n_best - 1] >= bound) | (finished.scores[:, -1] > -INFINITY)
