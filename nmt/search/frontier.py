"""The frontier of a beam search, and the rules by which it advances: the best continuations fill the next beam."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nmt.search.history import Candidates, Finished
from nmt.search.hypothesis import BOS, EOS

INFINITY = float("inf")
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
        received: attention that each source token has received from each hypothesis, 1 more on padding; None if
            there is no coverage penalty.
    """

    tokens: Int[Tensor, "batch beam"]
    log_probs: Float[Tensor, "batch beam"]
    finished: Finished
    max_lengths: Int[Tensor, " batch"]
    greedy: Int[Tensor, " batch"]
    received: Float[Tensor, "batch beam source"] | None

    def keep(self, sentences: Int[Tensor, " kept"]) -> "Frontier":
        """Return the frontier of some of the sentences."""
        received = None if self.received is None else self.received[sentences]
        tokens, log_probs, finished = self.tokens[sentences], self.log_probs[sentences], self.finished.keep(sentences)
        return Frontier(tokens, log_probs, finished, self.max_lengths[sentences], self.greedy[sentences], received)

    def running(self) -> Int[Tensor, " kept"]:
        """Return the indices of the sentences that are not done."""
        return (self.log_probs > -INFINITY).any(1).nonzero()[:, 0]


class Rules(NamedTuple):
    """The settings of a beam search (see `beam_search`), and how each step selects the next beam."""

    beam_size: int
    n_best: int
    patience: float
    length_penalty: float
    coverage_penalty: float
    forbidden: tuple[int, ...]

    @property
    def places(self) -> int:
        """The finished hypotheses of a sentence that are kept: at least `n_best`, and `patience` x `beam_size`."""
        finite = 1.0 if math.isinf(self.patience) else self.patience
        return max(self.n_best, math.ceil(finite * self.beam_size))

    def first(self, source_mask: Bool[Tensor, "batch source"], max_lengths: Int[Tensor, " batch"]) -> Frontier:
        """Return the frontier of one hypothesis per sentence, the empty one."""
        shape, device = (len(source_mask), self.beam_size), source_mask.device
        log_probs = torch.full(shape, -INFINITY, device=device)
        log_probs[:, 0] = 0.0
        tokens = torch.full(shape, BOS, dtype=torch.long, device=device)
        received = (~source_mask).double()[:, None].repeat(1, self.beam_size, 1) if self.coverage_penalty else None
        finished = Finished.none(len(source_mask), self.places, device)
        return Frontier(tokens, log_probs, finished, max_lengths.to(device), tokens.new_zeros(len(tokens)), received)

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
        is_end = (tokens == EOS) | (frontier.max_lengths == step + 1)[:, None]
        received = None if frontier.received is None else frontier.received + weights
        scores = best / (step + 1) ** self.length_penalty
        if received is not None:
            scores = scores + self.coverage(received).to(frontier.log_probs.dtype).gather(1, beams)
        finished = frontier.finished.add(scores.where(is_end, -INFINITY)[:, : self.beam_size], step)
        # A stable sort: ties and empty places keep their order.
        running, chosen = best.where(~is_end, -INFINITY).sort(dim=1, descending=True, stable=True)
        running, chosen = running[:, : self.beam_size], chosen[:, : self.beam_size]
        greedy = place_of_greedy(frontier.greedy, beams, chosen.where(running > -INFINITY, -1))
        best_now = scores.gather(1, chosen).where(running > -INFINITY, -INFINITY).amax(dim=1)
        done = self.is_done(running[:, 0], best_now, greedy, finished, frontier.max_lengths)
        running = running.where(~done[:, None], -INFINITY)
        candidates = Candidates(beams, tokens, best, chosen)
        if received is not None:
            received = received.gather(1, candidates.parents[:, :, None].expand(-1, -1, received.shape[2]))
        tokens = tokens.gather(1, chosen)
        return Frontier(tokens, running, finished, frontier.max_lengths, greedy, received), candidates

    def coverage(self, received: Float[Tensor, "batch beam source"]) -> Float[Tensor, "batch beam"]:
        """Return beta sum_j log(min(1, sum_i a_ij)), at most 0."""
        return self.coverage_penalty * received.clamp(MIN_ATTENTION, 1.0).log().sum(dim=2)

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
    before: Int[Tensor, " batch"], beams: Int[Tensor, "batch ranks"], chosen: Int[Tensor, "batch beam"]
) -> Int[Tensor, " batch"]:
    """Return the place of the greedy hypothesis in the next beam, or -1.

    Args:
        before: its place in this one, or -1.
        beams: the hypothesis that each candidate extends, best candidates first, so that a hypothesis's
            first candidate takes its most probable token.
        chosen: the candidates that form the next beam; -1 marks an empty place.
    """
    extends = beams == before[:, None]
    rank = extends.int().argmax(dim=1).where(extends.any(dim=1), -2)
    found = chosen == rank[:, None]
    return found.int().argmax(dim=1).where(found.any(dim=1), -1)


def best_continuations(
    before: Float[Tensor, "batch beam"], log_probs: Float[Tensor, "batch beam vocab"], k: int
) -> tuple[Float[Tensor, "batch k"], Int[Tensor, "batch k"], Int[Tensor, "batch k"]]:
    """Return the k greatest of before[b, i] + log_probs[b, i, v], for each sentence b.

    The vocabulary is dealt out to n groups, token v to group v mod n. The k best continuations are in the k groups
    with the greatest maxima. So first the maxima are sorted, then the tokens of k groups: for each hypothesis about
    sqrt(2 vocab) numbers each time instead of vocab. Sums have the wider type of the two.

    Args:
        before: log-probability of each hypothesis.
        log_probs: log-probability of each token after it, for a vocabulary of at least two.
        k: how many, at most 2 per hypothesis.

    Returns:
        their sums, best first, the hypotheses i, and the tokens v.
    """
    vocab = log_probs.shape[2]
    num_groups = groups_for(vocab)
    maxima = before[:, :, None] + group_maxima(log_probs, num_groups)
    groups = maxima.flatten(1).topk(k).indices
    beams, first = groups // num_groups, groups % num_groups
    tokens = first[:, :, None] + torch.arange(0, vocab, num_groups, device=first.device)  # [batch, k, group]
    is_token = tokens < vocab
    tokens = tokens.clamp(max=vocab - 1)
    indices = beams[:, :, None] * vocab + tokens
    values = log_probs.flatten(1).gather(1, indices.flatten(1)).view(tokens.shape)
    sums = torch.where(is_token, before.gather(1, beams)[:, :, None] + values, float("-inf"))
    best, order = sums.flatten(1).topk(k)
    return best, beams.gather(1, order // tokens.shape[2]), tokens.flatten(1).gather(1, order)


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
