"""Beam search: the best hypotheses that a beam of bounded width finds."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nmt.search.continuations import best_continuations
from nmt.search.history import Candidates
from nmt.search.hypothesis import BOS, EOS, PAD, UNK, Hypothesis, S, StepModel
from nmt.search.loop import Frontier, run_search


@torch.no_grad()
def beam_search(
    model: StepModel[S],
    source: Int[Tensor, "batch source"],
    source_mask: Bool[Tensor, "batch source"],
    source_lengths: Int[Tensor, " batch"],
    *,
    beam_size: int,
    max_lengths: Int[Tensor, " batch"],
    length_penalty: float = 0.0,
    coverage_penalty: float = 0.0,
    n_best: int = 1,
    bos: int = BOS,
    eos: int = EOS,
    pad: int = PAD,
    unk: int | None = UNK,
) -> list[list[Hypothesis]]:
    """Return for each sentence its n best hypotheses, distinct and best first.

    score = log p(hypothesis | source) / length^alpha + beta sum_j log(min(1, sum_i a_ij)), with eos counted in the
    length (Wu et al., 2016, have ((5 + length) / 6)^alpha instead); a_ij is the attention that source token j got
    from output token i, so that the second term asks that every word be translated. A hypothesis of the maximal
    length is taken as it is, with or without eos.

    At each step the `beam_size` best continuations end if they are with eos or of maximal length; the beam is
    filled again from those without eos, so that ended hypotheses do not narrow it. A sentence is finished when
    no running hypothesis can score better than its n best ended ones (log p only falls, and no hypothesis is
    longer than the maximum), or when `beam_size` hypotheses have ended. So a beam of 1 is greedy search, and one
    that holds all prefixes is exhaustive. Fewer than `n_best` come back only where fewer exist. A result does
    not depend on the other sentences of the batch.

    Args:
        model: what to search.
        source: sentences, with their mask and lengths, as `model.start` takes them.
        source_mask: True on real tokens.
        source_lengths: number of real tokens, eos in.
        beam_size: hypotheses that are followed at a time.
        max_lengths: most tokens to produce for each sentence, eos in, at least 1.
        length_penalty: alpha, at least 0; 0 is log p itself.
        coverage_penalty: beta, at least 0; 0 does not look at attention.
        n_best: hypotheses to return, at most `beam_size`.
        bos: read before the first token, never produced.
        eos: ends a hypothesis.
        pad: never produced.
        unk: never produced; None: no token is unknown, or it may be produced like any other.
    """
    assert 1 <= n_best <= beam_size
    assert length_penalty >= 0, "the bound on running hypotheses needs scores that grow with length"
    assert coverage_penalty >= 0, "the bound on running hypotheses takes it for a penalty"
    return run_search(
        model,
        source,
        source_mask,
        source_lengths,
        advance=_Rules(beam_size, n_best, length_penalty, coverage_penalty, eos).advance,
        beam_size=beam_size,
        n_best=n_best,
        max_lengths=max_lengths,
        bos=bos,
        eos=eos,
        forbidden=(pad, bos) if unk is None else (pad, bos, unk),
        count_attention=coverage_penalty > 0,
    )


class _Rules(NamedTuple):
    beam_size: int
    n_best: int
    length_penalty: float
    coverage_penalty: float
    eos: int

    def advance(
        self, frontier: Frontier, log_probs: Float[Tensor, "batch beam vocab"], step: int
    ) -> tuple[Frontier, Candidates]:
        """Choose among all continuations which end and which go on."""
        # At most `beam_size` of them are eos, one for each hypothesis, so enough are left to go on.
        best, beams, tokens = best_continuations(frontier.log_probs, log_probs, 2 * self.beam_size)
        is_eos = tokens == self.eos
        is_longest = (frontier.max_lengths == step + 1)[:, None]
        minus_inf = torch.full_like(best, float("-inf"))
        scores = best / (step + 1) ** self.length_penalty + self.coverage(frontier).gather(1, beams)
        scores = torch.where(is_eos | is_longest, scores, minus_inf)
        ends = frontier.ends.add(scores[:, : self.beam_size], step)
        # A stable sort: ties and empty places keep their order.
        running, chosen = torch.where(is_eos | is_longest, minus_inf, best).sort(dim=1, descending=True, stable=True)
        running, chosen = running[:, : self.beam_size], chosen[:, : self.beam_size]
        bound = running[:, 0] / frontier.max_lengths.double() ** self.length_penalty
        is_finished = (ends.scores[:, self.n_best - 1] >= bound) | (ends.scores[:, -1] > float("-inf"))
        running = torch.where(is_finished[:, None], minus_inf[:, : self.beam_size], running)
        attended = chosen_rows(frontier.attended, beams.gather(1, chosen))
        after = Frontier(tokens.gather(1, chosen), running, ends, frontier.max_lengths, attended)
        return after, Candidates(beams, tokens, best, chosen)

    def coverage(self, frontier: Frontier) -> Float[Tensor, "batch beam"]:
        """Return the coverage of each hypothesis, at most 0; a word that got nothing costs 23 beta."""
        if frontier.attended is None:
            return torch.zeros_like(frontier.log_probs)
        covered = frontier.attended.clamp(1e-10, 1.0).log().sum(dim=2)
        return (self.coverage_penalty * covered).to(frontier.log_probs.dtype)


def chosen_rows(
    attended: Float[Tensor, "batch beam source"] | None, beams: Int[Tensor, "batch k"]
) -> Float[Tensor, "batch k source"] | None:
    """Return the attention counted for some of the hypotheses, if it is counted."""
    return None if attended is None else attended.gather(1, beams[:, :, None].expand(-1, -1, attended.shape[2]))
