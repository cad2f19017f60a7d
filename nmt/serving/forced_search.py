"""A search from outside: a `StepModel` that begins as it must, and notes which hypotheses it was asked to extend."""

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from nmt.search.hypothesis import EOS, StepModel, StepOutput


class Node(NamedTuple):
    """A hypothesis that was in the beam."""

    parent: int  # index of the hypothesis that it extends; -1 for the empty one
    token: int  # id of the subword by which it does
    log_prob: float
    step: int  # its length


class ForcedState(NamedTuple):
    """The model's state, and how many tokens have been produced."""

    inner: Any
    position: int = 0
    parents: Tensor | None = None  # which hypothesis of the step before each extends, if search has selected

    def select(self, beams: Tensor) -> "ForcedState":
        """Return the state of k hypotheses of each sentence."""
        return self._replace(inner=self.inner.select(beams), parents=beams)

    def keep(self, sentences: Tensor) -> "ForcedState":
        """Return the state of some of the sentences."""
        return self._replace(inner=self.inner.keep(sentences))


@final
class ForcedSearch:
    """A model that can only begin as the prefix does: every other token has probability 0 there.

    The tokens of the prefix keep their own log-probabilities, so scores are those of whole translations. With `records`
    it is for one search, of one sentence, after which `nodes` has every hypothesis that was extended.
    """

    def __init__(self, model: StepModel[Any], prefix: Sequence[int], *, records: bool) -> None:
        self.model = model
        self.prefix = prefix
        self.records = records
        self.nodes: list[Node] = []
        self.children: dict[tuple[int, int], int] = {}  # the node that extends a node by a token
        self.beam: list[int] = []  # the node at each place of the beam; -1 is the empty hypothesis, -2 none
        self.log_probs: Tensor | None = None  # of the last step

    def eval(self) -> None:
        """Nothing: the model is in eval mode."""

    def start(self, source: Tensor, source_mask: Tensor, source_lengths: Tensor) -> ForcedState:
        """Encode sentences."""
        self.nodes, self.children, self.beam, self.log_probs = [], {}, [-1], None
        return ForcedState(self.model.start(source, source_mask, source_lengths))

    def step(self, tokens: Tensor, state: ForcedState) -> StepOutput[ForcedState]:
        """Extend every hypothesis by a token, and note them."""
        if self.log_probs is not None:
            self.beam = self._extended(tokens[0], state.parents, self.log_probs)
        output = self.model.step(tokens, state.inner)
        log_probs = output.log_probs
        if state.position < len(self.prefix):
            token = self.prefix[state.position]
            log_probs = torch.full_like(log_probs, -torch.inf)
            log_probs[..., token] = output.log_probs[..., token]
        if self.records:
            self.log_probs = log_probs[0]
        return StepOutput(log_probs, output.weights, ForcedState(output.state, state.position + 1))

    def _extended(self, tokens: Tensor, parents: Tensor | None, previous_log_probs: Tensor) -> list[int]:
        places = torch.zeros_like(tokens) if parents is None else parents[0]
        log_probs = previous_log_probs[places, tokens].tolist()  # search has set those of forbidden tokens to -inf
        beam: list[int] = []
        for place, token, log_prob in zip(places.tolist(), tokens.tolist(), log_probs, strict=True):
            parent = self.beam[place]
            # An empty place names any hypothesis and token: one that is none, one that has ended, or another's.
            if parent < -1 or token == EOS or log_prob == -torch.inf or (parent, token) in self.children:
                beam.append(-2)
                continue
            previous = self.nodes[parent] if parent >= 0 else Node(-1, 0, 0.0, 0)
            self.children[parent, token] = len(self.nodes)
            beam.append(len(self.nodes))
            self.nodes.append(Node(parent, token, previous.log_prob + log_prob, previous.step + 1))
        return beam

    def end_of(self, tokens: Sequence[int]) -> int:
        """Return the node of the longest beginning of these tokens that was in the beam."""
        node = -1
        for token in tokens:
            if (node, token) not in self.children:
                break
            node = self.children[node, token]
        return node
