"""Ensembles: several models that translate together, by the mean of their probabilities."""

import math
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nmt.data.batch import Batch
from nmt.errors import UserError
from nmt.models.checkpoint import Checkpoint
from nmt.models.seq2seq import SearchState, Seq2Seq
from nmt.search.hypothesis import StepOutput


class EnsembleState(NamedTuple):
    """The state of every member."""

    members: tuple[SearchState, ...]

    def select(self, beams: Int[Tensor, "batch k"]) -> "EnsembleState":
        return EnsembleState(tuple(state.select(beams) for state in self.members))

    def keep(self, sentences: Int[Tensor, " kept"]) -> "EnsembleState":
        return EnsembleState(tuple(state.keep(sentences) for state in self.members))


@final
class Ensemble(nn.Module):
    """p(y_i | y_<i, x) = 1/M sum_m p_m(y_i | y_<i, x) of M models with the same vocabularies; attention is the mean.

    Models trained from different random weights make different mistakes (Sutskever et al., 2014; Luong et al., 2015).
    """

    def __init__(self, members: Sequence[Seq2Seq]) -> None:
        super().__init__()
        self.members: Sequence[Seq2Seq] = nn.ModuleList(members)  # type: ignore[assignment]

    def start(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        source_lengths: Int[Tensor, " batch"],
    ) -> EnsembleState:
        return EnsembleState(tuple(member.start(source, source_mask, source_lengths) for member in self.members))

    def step(self, tokens: Int[Tensor, "batch beam"], state: EnsembleState) -> StepOutput[EnsembleState]:
        steps = [member.step(tokens, each) for member, each in zip(self.members, state.members, strict=True)]
        log_probs = log_mean([step.log_probs for step in steps])
        state = EnsembleState(tuple(step.state for step in steps))
        return StepOutput(log_probs, mean([step.weights for step in steps]), state)

    def attend(self, batch: Batch) -> Float[Tensor, "batch target source"]:
        return mean([member.attend(batch) for member in self.members])

    def log_probs(self, batch: Batch) -> Float[Tensor, "batch target"]:
        return log_mean([member.log_probs(batch) for member in self.members])


def log_mean(log_probs: Sequence[Float[Tensor, "*shape"]]) -> Float[Tensor, "*shape"]:
    """Return log (1/M sum_m exp x_m)."""
    return reduce(torch.logaddexp, log_probs) - math.log(len(log_probs))


def mean(tensors: Sequence[Float[Tensor, "*shape"]]) -> Float[Tensor, "*shape"]:
    """Return the mean of tensors of one shape."""
    return reduce(torch.add, tensors) / len(tensors)


def check_together(first: Checkpoint, other: Checkpoint) -> None:
    """Raise UserError unless two checkpoints predict the same subwords of the same language."""
    ours, theirs = first.config.data.direction, other.config.data.direction
    if ours != theirs:
        both = f"{other.folder} translates {theirs}, and {first.folder} {ours}"
        raise UserError(f"{both}: they cannot translate together")
    if not first.tokenizers.agree_with(other.tokenizers):
        raise UserError(
            f"{other.folder} and {first.folder} have different subwords and cannot translate together: train the one "
            f"with tokenizer.source_model and tokenizer.target_model of the other"
        )
