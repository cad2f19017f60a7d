"""The frontier of a beam search, and how a step advances it: the best continuations fill the next beam."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nmt.search.history import Candidates, Finished
from nmt.search.hypothesis import BOS, EOS, INFINITY

LANES = 64  # a multiple of every vector register's width: rows of 126 numbers took five times as long as rows of 128
MIN_ATTENTION = 1e-10  # bounds the coverage penalty of a source token that received none at 23 beta


class Frontier(NamedTuple):
    """For each sentence the hypotheses in the beam, which are still to be extended, and the best finished ones.

    A sentence with no hypothesis in the beam is done.

    Attributes:
        tokens: the last token of each hypothesis.
        log_probs: log-probability of each hypothesis; -inf marks an empty place.
        finished: the best finished hypotheses.
        max_lengths: most tokens of a hypothesis, including eos.
        greedy: the place of the hypothesis that greedy search would have found so far; -1 if it is not in the beam.
        coverage: sum_i a_ij, the attention that each source token has received from each hypothesis, 1 more on
            padding; None if there is no coverage penalty.
    """

    tokens: Int[Tensor, "batch beam"]
    log_probs: Float[Tensor, "batch beam"]
    finished: Finished
    max_lengths: Int[Tensor, " batch"]
    greedy: Int[Tensor, " batch"]
    coverage: Float[Tensor, "batch beam source"] | None

    def keep(self, sentences: Int[Tensor, " kept"]) -> "Frontier":
        """Return the frontier of some of the sentences."""
        coverage = None if self.coverage is None else self.coverage[sentences]
        tokens, log_probs, finished = self.tokens[sentences], self.log_probs[sentences], self.finished.keep(sentences)
        return Frontier(tokens, log_probs, finished, self.max_lengths[sentences], self.greedy[sentences], coverage)

    def is_running(self) -> Bool[Tensor, " batch"]:
        """Tell which sentences are not done."""
        return (self.log_probs > -INFINITY).any(1)


class BeamRule(NamedTuple):
    """How a step selects the next beam, and when a sentence is done, by the settings of `beam_search`."""

    beam_size: int
    n_best: int
    patience: float
    length_penalty: float
    coverage_penalty: float

    @property
    def num_finished(self) -> int:
        """How many finished hypotheses of a sentence are kept: at least `n_best`, and `patience` x `beam_size`."""
        finite = 1.0 if math.isinf(self.patience) else self.patience
        return max(self.n_best, math.ceil(finite * self.beam_size))

    def initial_frontier(
        self, source_mask: Bool[Tensor, "batch source"], max_lengths: Int[Tensor, " batch"]
    ) -> Frontier:
        """Return the frontier of one hypothesis per sentence, the empty one."""
        shape, device = (len(source_mask), self.beam_size), source_mask.device
        log_probs = torch.full(shape, -INFINITY, device=device)
        log_probs[:, 0] = 0.0
        tokens = torch.full(shape, BOS, dtype=torch.long, device=device)
        coverage = (~source_mask).double()[:, None].repeat(1, self.beam_size, 1) if self.coverage_penalty else None
        finished = Finished.empty(len(source_mask), self.num_finished, device)
        return Frontier(tokens, log_probs, finished, max_lengths.to(device), tokens.new_zeros(len(tokens)), coverage)

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
        best, extended, tokens = best_continuations(frontier.log_probs, log_probs, 2 * self.beam_size)
        is_end = (tokens == EOS) | (frontier.max_lengths == step + 1)[:, None]
        coverage = None if frontier.coverage is None else frontier.coverage + weights
        scores = best / (step + 1) ** self.length_penalty
        if coverage is not None:
            scores = scores + self.coverage_term(coverage).to(frontier.log_probs.dtype).gather(1, extended)
        finished = frontier.finished.add(scores.where(is_end, -INFINITY)[:, : self.beam_size], step)
        # A stable sort: ties and empty places keep their order.
        next_log_probs, chosen = best.where(~is_end, -INFINITY).sort(dim=1, descending=True, stable=True)
        next_log_probs, chosen = next_log_probs[:, : self.beam_size], chosen[:, : self.beam_size]
        is_running = next_log_probs > -INFINITY
        greedy = place_of_greedy(frontier.greedy, extended, chosen.where(is_running, -1))
        best_score = scores.gather(1, chosen).where(is_running, -INFINITY).amax(dim=1)
        done = self.is_done(next_log_probs[:, 0], best_score, greedy, finished, frontier.max_lengths)
        next_log_probs = next_log_probs.where(~done[:, None], -INFINITY)
        candidates = Candidates(extended, tokens, best, chosen)
        if coverage is not None:
            coverage = coverage.gather(1, candidates.parents[:, :, None].expand(-1, -1, coverage.shape[2]))
        tokens = tokens.gather(1, chosen)
        return Frontier(tokens, next_log_probs, finished, frontier.max_lengths, greedy, coverage), candidates

    def coverage_term(self, coverage: Float[Tensor, "batch beam source"]) -> Float[Tensor, "batch beam"]:
        """Return beta sum_j log(min(1, sum_i a_ij)), at most 0."""
        return self.coverage_penalty * coverage.clamp(MIN_ATTENTION, 1.0).log().sum(dim=2)

    def is_done(
        self,
        log_prob: Float[Tensor, " batch"],
        score: Float[Tensor, " batch"],
        greedy: Int[Tensor, " batch"],
        finished: Finished,
        max_lengths: Int[Tensor, " batch"],
    ) -> Bool[Tensor, " batch"]:
        """Tell which sentences need no further step, by the rule of `nmt.search.beam`.

        Args:
            log_prob: the greatest log-probability in the beam.
            score: the best score in the beam, at the present length.
            greedy: the place of the greedy hypothesis in the beam, or -1.
            finished: the best finished hypotheses.
            max_lengths: most tokens of a hypothesis.
        """
        none_can_win = finished.scores[:, self.n_best - 1] >= log_prob / max_lengths.double() ** self.length_penalty
        if math.isinf(self.patience):
            return none_can_win
        are_enough = finished.scores[:, -1] > -INFINITY
        return none_can_win | (are_enough & (finished.scores[:, 0] >= score) & (greedy < 0))


def place_of_greedy(
    previous: Int[Tensor, " batch"], extended: Int[Tensor, "batch ranks"], chosen: Int[Tensor, "batch beam"]
) -> Int[Tensor, " batch"]:
    """Return the place of the greedy hypothesis in the next beam, or -1.

    Args:
        previous: its place in this one, or -1.
        extended: the hypothesis that each candidate extends, best candidates first, so that a hypothesis's
            first candidate takes its most probable token.
        chosen: the candidates that form the next beam; -1 marks an empty place.
    """
    extends_greedy = extended == previous[:, None]
    rank = extends_greedy.int().argmax(dim=1).where(extends_greedy.any(dim=1), -2)
    is_greedy = chosen == rank[:, None]
    return is_greedy.int().argmax(dim=1).where(is_greedy.any(dim=1), -1)


def best_continuations(
    totals: Float[Tensor, "batch beam"], log_probs: Float[Tensor, "batch beam vocab"], k: int
) -> tuple[Float[Tensor, "batch k"], Int[Tensor, "batch k"], Int[Tensor, "batch k"]]:
    """Return the k greatest of totals[b, i] + log_probs[b, i, v], for each sentence b.

    The vocabulary is dealt out to n groups, token v to group v mod n. The k best continuations are in the k groups
    with the greatest maxima. So first the maxima are sorted, then the tokens of k groups: for each hypothesis about
    sqrt(2 vocab) numbers each time instead of vocab. Sums have the wider type of the two.

    Args:
        totals: log-probability of each hypothesis.
        log_probs: log-probability of each token after it, for a vocabulary of at least two.
        k: how many, at most 2 per hypothesis.

    Returns:
        their sums, best first, the hypotheses i, and the tokens v.
    """
    vocab = log_probs.shape[2]
    num_groups = groups_for(vocab)
    maxima = totals[:, :, None] + group_maxima(log_probs, num_groups)
    groups = maxima.flatten(1).topk(k).indices
    extended, first = groups // num_groups, groups % num_groups
    tokens = first[:, :, None] + torch.arange(0, vocab, num_groups, device=first.device)  # [batch, k, group]
    is_token = tokens < vocab
    tokens = tokens.clamp(max=vocab - 1)
    indices = extended[:, :, None] * vocab + tokens
    values = log_probs.flatten(1).gather(1, indices.flatten(1)).view(tokens.shape)
    sums = torch.where(is_token, totals.gather(1, extended)[:, :, None] + values, -INFINITY)
    best, order = sums.flatten(1).topk(k)
    return best, extended.gather(1, order // tokens.shape[2]), tokens.flatten(1).gather(1, order)


def groups_for(vocab: int) -> int:
    """Return a number of groups near sqrt(2 vocab); if large, a multiple of `LANES`."""
    number = vocab // max(1, math.isqrt(vocab // 2))
    return number if number < LANES else math.ceil(number / LANES) * LANES


def group_maxima(
    log_probs: Float[Tensor, "batch beam vocab"], num_groups: int
) -> Float[Tensor, "batch beam num_groups"]:
    """Return the maximum over the tokens of each group; the first groups may have one token more than the others."""
    size = log_probs.shape[2] // num_groups * num_groups
    maxima = log_probs[:, :, :size].unflatten(2, (-1, num_groups)).amax(dim=2)
    rest = log_probs[:, :, size:]
    larger = maxima[:, :, : rest.shape[2]]
    torch.maximum(larger, rest, out=larger)
    return maxima
