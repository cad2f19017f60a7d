"""Greedy search: the most probable token at every step."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nmt.search.continuations import best_continuations
from nmt.search.history import Candidates
from nmt.search.hypothesis import BOS, EOS, PAD, UNK, Hypothesis, S, StepModel
from nmt.search.loop import Frontier, run_search


@torch.no_grad()
def greedy_search(
    model: StepModel[S],
    source: Int[Tensor, "batch source"],
    source_mask: Bool[Tensor, "batch source"],
    source_lengths: Int[Tensor, " batch"],
    *,
    max_lengths: Int[Tensor, " batch"],
    length_penalty: float = 0.0,
    bos: int = BOS,
    eos: int = EOS,
    pad: int = PAD,
    unk: int = UNK,
) -> list[Hypothesis]:
    """Return for each sentence the hypothesis y_t = argmax p(y | y_<t, source), up to eos or `max_lengths` tokens.

    Args:
        model: what to search.
        source: sentences, with their mask and lengths, as `model.start` takes them.
        source_mask: True on real tokens.
        source_lengths: number of real tokens, eos in.
        max_lengths: most tokens to produce for each sentence, eos in, at least 1.
        length_penalty: alpha of the scores (the hypotheses do not depend on it).
        bos: read before the first token, never produced.
        eos: ends a hypothesis.
        pad: never produced.
        unk: never produced.
    """

    def advance(
        frontier: Frontier, log_probs: Float[Tensor, "batch 1 vocab"], step: int
    ) -> tuple[Frontier, Candidates]:
        best, _, tokens = best_continuations(frontier.log_probs, log_probs, 1)
        ended = (tokens == eos) | (frontier.max_lengths == step + 1)[:, None]
        minus_inf = torch.full_like(best, float("-inf"))
        ends = frontier.ends.add(torch.where(ended, best / (step + 1) ** length_penalty, minus_inf), step)
        only = torch.zeros_like(tokens)
        going_on = Frontier(tokens, torch.where(ended, minus_inf, best), ends, frontier.max_lengths)
        return going_on, Candidates(only, tokens, best, only)

    found = run_search(
        model,
        source,
        source_mask,
        source_lengths,
        advance=advance,
        beam_size=1,
        n_best=1,
        max_lengths=max_lengths,
        bos=bos,
        eos=eos,
        forbidden=(pad, unk, bos),
    )
    return [hypotheses[0] for hypotheses in found]
