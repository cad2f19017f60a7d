"""A recurrent layer that reads a whole sequence, as one autograd node."""

from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.fast.arena import Arena
from nmt.fast.cells import STEPS, CellSteps, Recurrent, state_buffer
from nmt.fast.linear import STEP


def layer(
    kind: type,
    gates: Float[Tensor, "*direction step row gates"],
    initial: Float[Tensor, "*direction row state"],
    recurrent: Recurrent,
) -> Float[Tensor, "*direction step row state"]:
    """Return the states after every step of a layer of cells of a `kind` in `STEPS`; see `Layer`."""
    arguments = (kind, torch.is_grad_enabled(), gates, initial, *recurrent)
    return Layer.apply(*arguments)  # type: ignore[no-untyped-call]


@final
class Layer(torch.autograd.Function):
    """states_t = cell(gates_t, states_{t-1}), as a function of gates, initial state and recurrent parameters.

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
        """Return the states after every step."""
        arena = Arena.borrow(gates.device)
        ctx.save_for_backward(weight)  # the steps read it in place: autograd notices if it changes
        ctx.dtype = gates.dtype
        with torch.autocast("cpu", enabled=False):
            before, after = state_buffer(arena, initial, gates.shape[STEP])
            steps = STEPS[kind](arena, Recurrent(weight, bias), before, after, gates.dtype)
            for step, share in enumerate(gates.to(weight.dtype).unbind(STEP)):
                steps.read(step)
                steps.update(step, share)
            states = after.clone(memory_format=torch.contiguous_format)
        if keep:
            ctx.arena, ctx.steps = arena, steps
        else:
            arena.give_back()
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_states: Float[Tensor, "*direction step row state"]) -> tuple[Tensor | None, ...]:
        """Run back, once."""
        steps, ctx.steps = ctx.steps, None
        if steps is None:
            raise RuntimeError("the fast path can be differentiated once: for more, set model.fast=off")
        _ = ctx.saved_tensors  # fails if the weight has changed
        with torch.autocast("cpu", enabled=False):
            grad_gates, grad_initial = run_back(steps, grad_states)
            grads = [grad for _, grad in steps.grads()]
        ctx.arena.give_back()
        return None, None, grad_gates.to(ctx.dtype), grad_initial, *grads, *[None] * (2 - len(grads))


def run_back(steps: CellSteps, grad_states: Float[Tensor, "*direction step row state"]) -> tuple[Tensor, Tensor]:
    """Return the gradients of the gates and of the initial state."""
    all_grad_gates = torch.empty_like(steps.all_gates)
    grad_after, grad_gates = grad_states.unbind(STEP), all_grad_gates.unbind(STEP)
    grad_state = torch.zeros_like(grad_after[0], memory_format=torch.contiguous_format)
    for step in range(len(grad_after) - 1, -1, -1):
        grad_state.add_(grad_after[step])
        steps.backward_update(step, grad_state, grad_gates[step])
        steps.backward_read(step, grad_state)
    return all_grad_gates, grad_state
