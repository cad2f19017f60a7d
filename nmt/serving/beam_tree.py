"""The tree of a beam search, seen from outside: a `StepModel` that notes which hypotheses it was asked to extend."""

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


class BeamRecorderState(NamedTuple):
    """A model's state, and which hypothesis of the step before each of its hypotheses extends; None at the first."""

    inner: Any
    parents: Tensor | None

    def select(self, beams: Tensor) -> "BeamRecorderState":
        """Return the state of k hypotheses of each sentence."""
        return BeamRecorderState(self.inner.select(beams), beams)

    def keep(self, sentences: Tensor) -> "BeamRecorderState":
        """Return the state of some of the sentences."""
        return BeamRecorderState(self.inner.keep(sentences), self.parents)


@final
class BeamRecorder:
    """Passes a search of one sentence on to a model; afterwards `nodes` has every hypothesis that was extended."""

    def __init__(self, model: StepModel[Any]) -> None:
        self.model = model
        self.nodes: list[Node] = []
        self.beam: list[int] = []  # the node at each place of the beam; -1 is the empty hypothesis, -2 none
        self.log_probs: Tensor | None = None  # of the last step

    def eval(self) -> None:
        """Nothing: the model is in eval mode."""

    def start(self, source: Tensor, source_mask: Tensor, source_lengths: Tensor) -> BeamRecorderState:
        """Encode the sentence."""
        self.nodes, self.beam, self.log_probs = [], [], None
        return BeamRecorderState(self.model.start(source, source_mask, source_lengths), None)

    def step(self, tokens: Tensor, state: BeamRecorderState) -> StepOutput[BeamRecorderState]:
        """Extend every hypothesis by a token, and note them."""
        self.beam = [-1] if self.log_probs is None else self._extended(tokens[0], state.parents)
        output = self.model.step(tokens, state.inner)
        self.log_probs = output.log_probs[0]
        return StepOutput(output.log_probs, output.weights, BeamRecorderState(output.state, None))

    def _extended(self, tokens: Tensor, parents: Tensor | None) -> list[int]:
        assert self.log_probs is not None
        places = torch.zeros_like(tokens) if parents is None else parents[0]
        log_probs = self.log_probs[places, tokens].tolist()  # search has set those of forbidden tokens to -inf
        beam: list[int] = []
        seen: set[tuple[int, int]] = set()
        for place, token, log_prob in zip(places.tolist(), tokens.tolist(), log_probs, strict=True):
            parent = self.beam[place]
            # An empty place names any hypothesis and token: one that is none, one that has ended, or another's.
            if parent < -1 or token == EOS or log_prob == -torch.inf or (parent, token) in seen:
                beam.append(-2)
                continue
            seen.add((parent, token))
            previous = self.nodes[parent] if parent >= 0 else Node(-1, 0, 0.0, 0)
            self.nodes.append(Node(parent, token, previous.log_prob + log_prob, previous.step + 1))
            beam.append(len(self.nodes) - 1)
        return beam

    def end_of(self, tokens: Sequence[int]) -> int:
        """Return the node of the longest beginning of these tokens that was in the beam."""
        children = {(node.parent, node.token): index for index, node in enumerate(self.nodes)}
        node = -1
        for token in tokens:
            if (node, token) not in children:
                break
            node = children[node, token]
        return node
