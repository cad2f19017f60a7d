"""Beam search: the best hypotheses that a beam of bounded width finds.

    score = log p(hypothesis | source) / length^alpha + beta sum_j log(min(1, sum_i a_ij))

The length counts eos (Wu et al., 2016, have ((5 + length) / 6)^alpha instead). a_ij is the attention of output token
i to source token j; the second term, theirs, is at most 0 and penalizes source tokens that were not attended to.

At each step, every hypothesis in the beam is extended by every token, and the 2 `beam_size` best extensions are the
candidates. Those of the first `beam_size` that end in eos or have the maximal length, with or without eos, are
finished; the best of the others without eos fill the beam, so that finished hypotheses do not narrow it.

A sentence is done when one of these is true:

1. No hypothesis in the beam can score better than its n best finished ones: log p only falls, and no hypothesis is
   longer than the maximum.
2. `patience` x `beam_size` hypotheses are finished (Kasai et al., 2022), none in the beam has a better score at its
   present length than the best of them, and the greedy hypothesis is not in the beam: it has ended or been lost.

So the result never scores below that of greedy search, unless the beam lost the greedy hypothesis on the way. Infinite
patience leaves the first rule alone: slower, and exact for this beam.

A beam of 1 is greedy search, where patience is at most 1, and one that holds all prefixes is exhaustive. The result for
a sentence does not depend on the others of its batch.
"""

import math

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from nmt.search.frontier import BeamRule, Frontier
from nmt.search.history import Finished, History
from nmt.search.hypothesis import (
    INFINITY,
    UNK,
    Hypothesis,
    S,
    StepModel,
    forbidden_tokens,
    sentences_to_keep,
    steps_between_checks,
)


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
    patience: float = 1.0,
    unk: int | None = UNK,
) -> list[list[Hypothesis]]:
    """Return the n best hypotheses of each sentence, distinct and best first; fewer only where fewer exist.

    Args:
        model: the model to search.
        source: sentences, as `model.start` takes them.
        source_mask: True on real tokens.
        source_lengths: number of real tokens, including special tokens.
        beam_size: hypotheses in the beam.
        max_lengths: maximal number of tokens for each sentence, including eos; at least 1.
        length_penalty: alpha, at least 0; at 0 the score has no normalization by length.
        coverage_penalty: beta, at least 0.
        n_best: hypotheses to return, at most `beam_size`.
        patience: the search may end once this times `beam_size` hypotheses are finished; infinity: only when no other
            can score better.
        unk: an id that is never produced, like `PAD` and `BOS`; None allows it.
    """
    assert len(source) > 0
    assert int(max_lengths.min()) >= 1
    assert 1 <= n_best <= beam_size
    assert patience > 0
    assert length_penalty >= 0, "the bound on running hypotheses needs scores that grow with length"
    assert coverage_penalty >= 0, "the bound on running hypotheses takes it for a penalty"
    if not math.isinf(patience):  # no more than beam_size can end at each step
        patience = min(patience, float(max_lengths.max()))
    rule = BeamRule(beam_size, n_best, patience, length_penalty, coverage_penalty)
    history = History(len(source), rule.num_finished, source.device)
    frontier = rule.initial_frontier(source_mask, max_lengths)
    sentences = (source, source_mask, source_lengths)
    finished = search(model, sentences, frontier, rule, history, forbidden_tokens(unk, source.device))
    return history.hypotheses(finished, n_best=n_best, source_lengths=source_lengths)


def search(
    model: StepModel[S],
    sentences: tuple[Tensor, Tensor, Tensor],
    frontier: Frontier,
    rule: BeamRule,
    history: History,
    forbidden: Int[Tensor, " tokens"],
) -> Finished:
    """Search until all sentences (the arguments of `model.start`) are done, recording every step in `history`.

    Returns:
        the finished hypotheses of the sentences that were searched to the end; `history` has those of the others.
    """
    check_every = steps_between_checks(forbidden.device)
    state = model.start(*sentences)
    for step in range(int(frontier.max_lengths.max())):
        width = rule.beam_size if step else 1  # at first every hypothesis is the empty one
        output = model.step(frontier.tokens[:, :width], state)
        log_probs = output.log_probs.index_fill_(2, forbidden, -INFINITY).expand(-1, rule.beam_size, -1)
        weights = output.weights.expand(-1, rule.beam_size, -1)
        frontier, candidates = rule.advance(frontier, log_probs, weights, step)
        history.append(candidates, weights)
        state = output.state
        if rule.beam_size > 1:
            state = state.select(candidates.parents.clamp(max=width - 1))  # an empty place may name an absent parent
        if (step + 1) % check_every == 0:
            kept = sentences_to_keep(frontier.is_running(), len(sentences[0]))
            if len(kept) == 0:
                break
            if len(kept) < len(frontier.tokens):
                history.keep(kept, frontier.finished)
                frontier, state = frontier.keep(kept), state.keep(kept)
    return frontier.finished
