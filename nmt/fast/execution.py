"""Running a chain forwards and later back, on memory of its own."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple, Protocol, final, runtime_checkable

from torch import Tensor, nn

from nmt.attention.attention import AttentionMechanism
from nmt.fast.arena import Arena
from nmt.fast.chains import Chain, Emitted, Given, Task


@runtime_checkable
class Maker(Protocol):
    """What prepares a chain: a decoder."""

    training: bool
    attention: AttentionMechanism

    def chain(self, task: Task) -> Chain: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...


class Gradients(NamedTuple):
    """What running back finds; those of the parameters by the parameter's `id`."""

    gates: Tensor
    keys: Tensor
    values: Tensor
    states: tuple[Tensor, ...]
    parameters: dict[int, Tensor]


class Execution(ABC):
    """A chain that can be run forwards, then back, and is done."""

    @abstractmethod
    def run(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return hidden vectors, contexts and weights, steps first, the caller's own."""

    @abstractmethod
    def run_back(self, by_emitted: Emitted) -> Gradients:
        """Return the gradients; those of gates, keys and values live until `close`, the others are the caller's own."""

    @abstractmethod
    def close(self) -> None:
        """Let others use the memory."""


@final
class Eager(Execution):
    """One kernel after the other, as the program says."""

    def __init__(self, maker: Maker, given: Given) -> None:
        self.arena = Arena.borrow(given.gates.device)
        self.chain = maker.chain(Task(self.arena, given))

    def run(self) -> tuple[Tensor, Tensor, Tensor]:
        hidden, contexts, weights = self.chain.run()
        return hidden.clone(), contexts.clone(), weights.clone()

    def run_back(self, by_emitted: Emitted) -> Gradients:
        return gradients_of(self.chain, by_emitted)

    def close(self) -> None:
        self.arena.give_back()


def gradients_of(chain: Chain, by_emitted: Emitted) -> Gradients:
    """Run a chain back."""
    by_states = chain.run_back(by_emitted)
    by_keys, by_values = chain.attention.memory_gradients()
    by_parameters = {id(parameter): gradient for parameter, gradient in chain.gradients()}
    return Gradients(chain.by_gates, by_keys, by_values, by_states, by_parameters)
