"""A recurrent layer that reads a whole sequence, as one autograd node."""

from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nmt.models.cells import Cell
from nmt.models.fast.arena import Arena
from nmt.models.fast.cells import STEPS, Recurrent
from nmt.models.fast.stack import state_buffer


def bidirectional(
    rnn: nn.GRU | nn.LSTM, layer: int, inputs: Float[Tensor, "step row input"], reversal: Int[Tensor, " step_row"]
) -> tuple[Float[Tensor, "step row hidden_2"], Float[Tensor, "row state"]]:
    """Run both directions of a layer of torch's; return its outputs, and the backward direction's last states.

    `reversal` turns each sentence round where it stands (see `reversal_of`). The padding behind a sentence is
    read after all of it, in both directions, so it changes nothing but its own outputs.
    """
    ahead = layer_states(rnn, f"l{layer}", inputs)
    back = Permuted.apply(layer_states(rnn, f"l{layer}_reverse", Permuted.apply(inputs, reversal)), reversal)  # type: ignore[no-untyped-call]
    size = rnn.hidden_size
    return torch.cat((ahead[..., :size], back[..., :size]), dim=-1), back[0]


def reversal_of(lengths: Int[Tensor, " row"], steps: int) -> Int[Tensor, " step_row"]:
    """Return, for each place of a flattened [step, row], the place of the word that stands there when turned round."""
    step, last = torch.arange(steps, device=lengths.device)[:, None], lengths[None] - 1
    turned = torch.where(step <= last, last - step, step)
    return (turned * len(lengths) + torch.arange(len(lengths), device=lengths.device)).flatten()


def layer_states(
    rnn: nn.GRU | nn.LSTM, suffix: str, inputs: Float[Tensor, "step row input"]
) -> Float[Tensor, "step row state"]:
    """Return the state after every step, h, or [h; c] of an LSTM, of one direction of a layer of torch's."""
    weight, recurrent, bias, extra = (
        getattr(rnn, f"{name}_{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    bias, inside = merged(rnn, bias, extra)
    if isinstance(rnn, nn.LSTM):
        weight, recurrent, bias = (candidate_last(each) for each in (weight, recurrent, bias))
    gates = nn.functional.linear(inputs, weight, bias)
    initial = recurrent.new_zeros(inputs.shape[1], STEPS[type(rnn)].parts * rnn.hidden_size)
    states: Tensor = Layer.apply(type(rnn), gates, initial, recurrent, inside)  # type: ignore[no-untyped-call]
    return states


def layer_of_cell(
    cell: Cell, gates: Float[Tensor, "step row gates"], initial: Float[Tensor, "row state"]
) -> Float[Tensor, "step row state"]:
    """Return the state after every step of one of our cells, from the inputs' share of its gates."""
    states: Tensor = Layer.apply(type(cell), gates, initial, *Recurrent.of(cell))  # type: ignore[no-untyped-call]
    return states


def merged(rnn: nn.GRU | nn.LSTM, bias: Tensor, recurrent: Tensor) -> tuple[Tensor, Tensor | None]:
    """Add torch's two biases, but for that inside a GRU's candidate, which comes second."""
    if isinstance(rnn, nn.LSTM):
        return bias + recurrent, None
    opening, inside = recurrent.split((2 * rnn.hidden_size, rnn.hidden_size))
    return bias + nn.functional.pad(opening, (0, rnn.hidden_size)), inside


def candidate_last(weight: Float[Tensor, "gates *size"]) -> Float[Tensor, "gates *size"]:
    """Reorder the gates of an LSTM of torch's, i f g o, as ours are: i f o g."""
    enter, forget, candidate, out = weight.chunk(4)
    return torch.cat((enter, forget, out, candidate))


@final
class Permuted(torch.autograd.Function):
    """Rows of a flattened [step, row] in another order; the order must be its own inverse."""

    @staticmethod
    def forward(ctx: Any, x: Float[Tensor, "step row size"], order: Int[Tensor, " step_row"]) -> Tensor:
        ctx.order = order
        return x.flatten(0, 1).index_select(0, order).view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Undo the order."""
        return gradient.flatten(0, 1).index_select(0, ctx.order).view_as(gradient), None


@final
class Layer(torch.autograd.Function):
    """states_t = cell(gates_t, states_{t-1}), as a function of gates, initial state and weights."""

    @staticmethod
    def forward(
        ctx: Any,
        kind: type,
        gates: Float[Tensor, "step row gates"],
        initial: Tensor,
        weight: Tensor,
        bias: Tensor | None,
    ) -> Float[Tensor, "step row state"]:
        ctx.arena = arena = Arena.borrow(gates.device)
        ctx.dtype = gates.dtype
        cell = STEPS[kind]
        steps = len(gates)
        with torch.autocast(gates.device.type, enabled=False):
            states = state_buffer(arena, initial, steps)
            ctx.steps = cell(arena, Recurrent(weight, bias), states[:-1], states[1:], gates.dtype)
            gates = gates.to(weight.dtype)
            for step in range(steps):
                ctx.steps.read(step)
                ctx.steps.update(step, gates[step])
            return states[1:].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_states: Float[Tensor, "step row state"]) -> tuple[Tensor | None, ...]:
        """Run back, once."""
        chain, ctx.steps = ctx.steps, None
        if chain is None:
            raise RuntimeError("the fast path can be differentiated once: for more, set model.fast=off")
        by_gates = torch.empty_like(chain.gates)
        by_state = torch.zeros_like(by_states[0])
        for step in range(len(by_states) - 1, -1, -1):
            by_state.add_(by_states[step])
            chain.backward_update(step, by_state, by_gates[step])
            chain.backward_read(step, by_state)
        found = [gradient for _, gradient in chain.gradients()]
        ctx.arena.give_back()
        return None, by_gates.to(ctx.dtype), by_state, *found, *[None] * (2 - len(found))
