"""A recurrent layer that reads a whole sequence, as one autograd node."""

from typing import Any, NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nmt.fast.arena import Arena
from nmt.fast.cells import STEPS, CellSteps, Recurrent
from nmt.fast.product import STEP
from nmt.fast.stack import state_buffer
from nmt.models.cells import Cell
from nmt.models.embedding import Embedded


def bidirectional(
    rnn: nn.GRU | nn.LSTM, index: int, inputs: Embedded, reversal: Int[Tensor, " step_row"]
) -> tuple[Float[Tensor, "step row hidden_2"], Float[Tensor, "row state"]]:
    """Run both directions of a layer of torch's, side by side; return outputs, and the backward one's last states.

    `reversal` turns each sentence round where it stands (see `reversal_of`). The padding behind a sentence is
    read after all of it, in both directions, so it changes nothing but its own outputs.
    """
    ahead, back = weights_of(rnn, f"l{index}"), weights_of(rnn, f"l{index}_reverse")
    weight, bias = torch.cat((ahead.inputs, back.inputs)), torch.cat((ahead.bias, back.bias))
    both = nn.functional.linear(inputs.vectors, weight, bias).to(weight.dtype)
    # One gather for both: of each vector's two rows of gates the first is read ahead, the second turned round.
    places = inputs.places_of_all()
    order = torch.stack((2 * places, 2 * places.flatten()[reversal].view_as(places) + 1))
    gates = nn.functional.embedding(order, both.view(-1, weight.shape[0] // 2))
    recurrent = torch.stack((ahead.recurrent, back.recurrent))
    inside = None if ahead.inside is None or back.inside is None else torch.stack((ahead.inside, back.inside))
    initial = recurrent.new_zeros(2, gates.shape[2], STEPS[type(rnn)].parts * rnn.hidden_size)
    states, states_back = layer(type(rnn), gates, initial, Recurrent(recurrent, inside)).unbind()
    states_back = Permuted.apply(states_back, reversal)  # type: ignore[no-untyped-call]
    size = rnn.hidden_size
    return torch.cat((states[..., :size], states_back[..., :size]), dim=-1), states_back[0]


def reversal_of(lengths: Int[Tensor, " row"], steps: int) -> Int[Tensor, " step_row"]:
    """Return, for each place of a flattened [step, row], the place of the word that stands there when turned round."""
    step, last = torch.arange(steps, device=lengths.device)[:, None], lengths[None] - 1
    turned = torch.where(step <= last, last - step, step)
    return (turned * len(lengths) + torch.arange(len(lengths), device=lengths.device)).flatten()


class Weights(NamedTuple):
    """One direction of a layer of torch's, in the order of our cells."""

    inputs: Float[Tensor, "gates input"]
    bias: Float[Tensor, " gates"]
    recurrent: Float[Tensor, "gates hidden"]
    inside: Float[Tensor, " hidden"] | None


def weights_of(rnn: nn.GRU | nn.LSTM, suffix: str) -> Weights:
    """Return the weights of a direction, torch's two biases added up but for that inside a GRU's candidate."""
    inputs, recurrent, bias, extra = (
        getattr(rnn, f"{name}_{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    if isinstance(rnn, nn.LSTM):
        return Weights(candidate_last(inputs), candidate_last(bias + extra), candidate_last(recurrent), None)
    opening, inside = extra.split((2 * rnn.hidden_size, rnn.hidden_size))
    return Weights(inputs, bias + nn.functional.pad(opening, (0, rnn.hidden_size)), recurrent, inside)


def layer_of_cell(
    cell: Cell, gates: Float[Tensor, "step row gates"], initial: Float[Tensor, "row state"]
) -> Float[Tensor, "step row state"]:
    """Return the state after every step of one of our cells, from the inputs' share of its gates."""
    return layer(type(cell), gates, initial, Recurrent.of(cell))


def layer(
    kind: type, gates: Float[Tensor, "*direction step row gates"], initial: Tensor, recurrent: Recurrent
) -> Float[Tensor, "*direction step row state"]:
    """Return the states after every step; see `Layer`."""
    arguments = (kind, torch.is_grad_enabled(), gates, initial, *recurrent)
    states: Tensor = Layer.apply(*arguments)  # type: ignore[no-untyped-call]
    return states


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
    """states_t = cell(gates_t, states_{t-1}), as a function of gates, initial state and weights.

    Several directions, if any, are an axis before all others.
    """

    @staticmethod
    def forward(
        ctx: Any,
        kind: type,
        keep: bool,
        gates: Float[Tensor, "*direction step row gates"],
        initial: Float[Tensor, "*direction row state"],
        weight: Float[Tensor, "*direction gates hidden"],
        bias: Float[Tensor, "*direction hidden"] | None,
    ) -> Float[Tensor, "*direction step row state"]:
        arena = Arena.borrow(gates.device)
        ctx.save_for_backward(weight)  # so that autograd notices if it changes: the chain reads it where it is
        ctx.dtype, ctx.device = gates.dtype, gates.device.type
        steps = gates.shape[STEP]
        with torch.autocast(ctx.device, enabled=False):
            before, after = state_buffer(arena, initial, steps)
            chain = STEPS[kind](arena, Recurrent(weight, bias), before, after, gates.dtype)
            for step, share in enumerate(gates.to(weight.dtype).unbind(STEP)):
                chain.read(step)
                chain.update(step, share)
            states = after.clone(memory_format=torch.contiguous_format)
        if keep:
            ctx.arena, ctx.steps = arena, chain
        else:
            arena.give_back()
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_states: Float[Tensor, "*direction step row state"]) -> tuple[Tensor | None, ...]:
        """Run back, once."""
        chain, ctx.steps = ctx.steps, None
        if chain is None:
            raise RuntimeError("the fast path can be differentiated once: for more, set model.fast=off")
        _ = ctx.saved_tensors  # fails if the weight has changed
        with torch.autocast(ctx.device, enabled=False):
            by_gates, by_state = run_back(chain, by_states)
            found = [gradient for _, gradient in chain.gradients()]
        ctx.arena.give_back()
        return None, None, by_gates.to(ctx.dtype), by_state, *found, *[None] * (2 - len(found))


def run_back(chain: CellSteps, by_states: Float[Tensor, "*direction step row state"]) -> tuple[Tensor, Tensor]:
    """Return the gradients of the gates and of the state before the first step."""
    all_by_gates = torch.empty_like(chain.all_gates)
    by_after, by_gates = by_states.unbind(STEP), all_by_gates.unbind(STEP)
    by_state = torch.zeros_like(by_after[0], memory_format=torch.contiguous_format)
    for step in range(len(by_after) - 1, -1, -1):
        by_state.add_(by_after[step])
        chain.backward_update(step, by_state, by_gates[step])
        chain.backward_read(step, by_state)
    return all_by_gates, by_state
