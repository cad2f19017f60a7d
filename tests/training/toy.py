"""A toy of a model, and what its trainer saves."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nmt.config.schema import ModelConfig
from nmt.models.build import build_model
from nmt.models.seq2seq import Seq2Seq
from nmt.training.trainer import Trainer
from nmt.training.validation import Validation

VOCAB = 12
CPU = torch.device("cpu")


class Saved:
    """Records what a trainer saved, in order, and what it validated."""

    def __init__(self, metrics: list[float]) -> None:
        self.metrics = iter(metrics)
        self.models: list[tuple[str, int, dict[str, Tensor]]] = []
        self.states: list[dict[str, Any]] = []
        self.validated: list[dict[str, Tensor]] = []

    def validate(self, model: Seq2Seq) -> Validation:
        self.validated.append(copied(model))
        return Validation({"loss": 0.0, "bleu": next(self.metrics)}, [])

    def save(self, name: str, model: Seq2Seq, *, step: int, training_state: dict[str, Any] | None) -> None:
        self.models.append((name, step, copied(model)))
        if training_state is not None:
            self.states.append(training_state)

    def steps(self, name: str) -> list[int]:
        return [step for saved, step, _ in self.models if saved == name]


def copied(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def equal(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return all(torch.equal(left[name], right[name]) for name in left)


Make = Callable[..., tuple[Trainer, Saved]]


def toy(dropout: float = 0.0) -> Seq2Seq:
    torch.manual_seed(1)
    config = ModelConfig(embedding_size=16, hidden_size=32, dropout=dropout, readout="linear")
    return build_model(config, VOCAB, VOCAB, joint=True)
