"""The loop that every search shares: step, choose, write down, and let finished sentences leave the batch."""

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nmt.search.history import Candidates, Ends, History
from nmt.search.hypothesis import Hypothesis, S, StepModel

# Steps from one question which sentences are finished to the next: a GPU would have to be waited for.
CHECK_EVERY = {"cpu": 1}
CHECK_EVERY_ELSEWHERE = 4


class Frontier(NamedTuple):
    """The hypotheses that go on, the best that ended, and the longest allowed, of each sentence in the batch.

    A `log_prob` of -inf marks an empty place; a sentence with nothing but empty places is finished. `attended` is
    the attention that each source token has had so far, where the search asks for it (padding: 1).
    """

    tokens: Int[Tensor, "batch beam"]
    log_probs: Float[Tensor, "batch beam"]
    ends: Ends
    max_lengths: Int[Tensor, " batch"]
    attended: Float[Tensor, "batch beam source"] | None = None

    @classmethod
    def first(cls, max_lengths: Int[Tensor, " batch"], beam_size: int, bos: int) -> "Frontier":
        """One hypothesis a sentence, the empty one."""
        shape, device = (len(max_lengths), beam_size), max_lengths.device
        log_probs = torch.full(shape, float("-inf"), device=device)
        log_probs[:, 0] = 0.0
        tokens = torch.full(shape, bos, dtype=torch.long, device=device)
        return cls(tokens, log_probs, Ends.none(*shape, device), max_lengths)

    def keep(self, sentences: Int[Tensor, " kept"]) -> "Frontier":
        """Go on with some of the sentences."""
        tokens, log_probs, max_lengths = (t[sentences] for t in (self.tokens, self.log_probs, self.max_lengths))
        attended = None if self.attended is None else self.attended[sentences]
        return Frontier(tokens, log_probs, self.ends.keep(sentences), max_lengths, attended)

    def attend(self, weights: Float[Tensor, "batch beam source"]) -> "Frontier":
        """Add the attention of a step, if it is asked for."""
        return self if self.attended is None else self._replace(attended=self.attended + weights)


@runtime_checkable
class Advance(Protocol):
    """How a search goes on: the frontier, the log-probabilities of the next token, the number of the step.

    The frontier's `attended` counts the step's attention; what is returned is for the hypotheses that go on.
    """

    def __call__(
        self, frontier: Frontier, log_probs: Float[Tensor, "batch beam vocab"], step: int
    ) -> tuple[Frontier, Candidates]:
        """Return the next frontier and the candidates that it was chosen from."""


def run_search(
    model: StepModel[S],
    source: Int[Tensor, "batch source"],
    source_mask: Bool[Tensor, "batch source"],
    source_lengths: Int[Tensor, " batch"],
    *,
    advance: Advance,
    beam_size: int,
    n_best: int,
    max_lengths: Int[Tensor, " batch"],
    bos: int,
    eos: int,
    forbidden: tuple[int, ...],
    count_attention: bool = False,
) -> list[list[Hypothesis]]:
    """Search with `advance` until every sentence is finished; `forbidden` tokens are never produced."""
    assert len(source) > 0
    assert int(max_lengths.min()) >= 1
    device = source.device
    frontier = Frontier.first(max_lengths.to(device), beam_size, bos)
    if count_attention:
        frontier = frontier._replace(attended=(~source_mask).double()[:, None].repeat(1, beam_size, 1))
    never = torch.tensor(forbidden, device=device)
    history = History(len(source), device)
    check_every = CHECK_EVERY.get(device.type, CHECK_EVERY_ELSEWHERE)
    state = model.start(source, source_mask, source_lengths)
    width = 1  # hypotheses that there are: all begin as the empty one
    for step in range(int(max_lengths.max())):
        output = model.step(frontier.tokens[:, :width], state)
        log_probs = output.log_probs.index_fill_(2, never, float("-inf")).expand(-1, beam_size, -1)
        weights = output.weights.expand(-1, beam_size, -1)
        frontier, candidates = advance(frontier.attend(weights), log_probs, step)
        history.append(candidates, weights)
        state = output.state
        if beam_size > 1:
            beams = candidates.beams.gather(1, candidates.chosen)
            state = state.select(beams.clamp(max=width - 1))  # an empty place may name a hypothesis that is not there
            width = beam_size
        if (step + 1) % check_every == 0:
            running = (frontier.log_probs > float("-inf")).any(1).nonzero()[:, 0]
            if len(running) == 0:
                break
            if len(running) < len(frontier.tokens):
                history.leave(frontier.ends, running)
                frontier, state = frontier.keep(running), state.keep(running)
    return history.hypotheses(frontier.ends, n_best=n_best, eos=eos, source_lengths=source_lengths)
