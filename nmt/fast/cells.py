"""The recurrent cells of `nmt.models.layers`, each as one autograd node with its derivative written by hand."""

from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nmt.fast.kernels import compute_dtype, grad_sigmoid, grad_tanh, tanh_
from nmt.fast.products import Weight, multiply, share
from nmt.models.layers import GRU, LSTM, Cell

Gates = Float[Tensor, "*batch gates"]
State = Float[Tensor, "*batch state"]
Bias = Float[Tensor, "*#batch hidden"]


def layer(
    kind: type,
    gates: Float[Tensor, "*direction step row gates"],
    initial: Float[Tensor, "*direction row state"],
    weight: Float[Tensor, "*direction gates hidden"],
    bias: Float[Tensor, "*direction hidden"] | None,
) -> Float[Tensor, "*direction step row state"]:
    """Return the states of a layer that reads a whole sequence, after every step.

    Under autocast, matrix products use its dtype and everything else the dtype of the parameters.

    Args:
        kind: of its cells, ours or torch's.
        gates: the inputs' contributions to the gates.
        initial: the states before the first step.
        weight: W of all gates, for the state.
        bias: of a GRU, that of U h + b in the candidate.
    """
    update, size = STEPS[kind].apply, weight.shape[-1]
    state, states = initial, []
    bias = None if bias is None else bias[..., None, :]
    factor = Weight(weight, compute_dtype(weight))
    with torch.autocast("cpu", enabled=False):
        weight = share(weight, factor)
        for step_gates in gates.to(weight.dtype).unbind(dim=-3):
            hidden = state if state.shape[-1] == size else state[..., :size]
            state = update(step_gates, multiply(hidden, weight), state, bias)
            states.append(state)
        return torch.stack(states, dim=-3)


def candidate_bias(cell: Cell) -> Float[Tensor, " hidden"] | None:
    """Return the bias of U h + b in a GRU's candidate."""
    return cell.candidate_bias if isinstance(cell, GRU) else None


def forward(cell: Cell, gates: Gates, state: State) -> State:
    """As the cell's own `forward`, which is called itself on a GPU where no gradient is wanted."""
    if state.device.type != "cpu" and not torch.is_grad_enabled():
        return type(cell).forward(cell, gates, state)
    recurrent = cell.recurrent(cell.hidden(state)).to(state.dtype)
    return STEPS[type(cell)].apply(gates.to(state.dtype), recurrent, state, candidate_bias(cell))


@final
class GRUStep(torch.autograd.Function):
    """Keeps r, z, n and U h + b."""

    @staticmethod
    def forward(ctx: Any, gates: Gates, recurrent: Gates, state: State, bias: Bias) -> State:
        size = state.shape[-1]
        gates, input_candidate = gates.split_with_sizes((2 * size, size), dim=-1)
        recurrent_gates, recurrent_candidate = recurrent.split_with_sizes((2 * size, size), dim=-1)
        gates = (gates + recurrent_gates).sigmoid_()
        reset, update = gates.chunk(2, dim=-1)
        inner = recurrent_candidate + bias
        candidate = tanh_(torch.addcmul(input_candidate, reset, inner))
        ctx.save_for_backward(gates, candidate, inner, state)
        ctx.bias_shape = bias.shape
        return torch.lerp(candidate, state, update)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: State) -> tuple[Tensor, ...]:
        gates, candidate, inner, state = ctx.saved_tensors
        reset, update = gates.chunk(2, dim=-1)
        grad_gates = state.new_empty(*state.shape[:-1], 3 * state.shape[-1])
        grad_reset, grad_update, grad_candidate = grad_gates.chunk(3, dim=-1)
        scratch = torch.sub(state, candidate).mul_(grad)
        grad_sigmoid(scratch, update, out=grad_update)
        grad_tanh(torch.addcmul(grad, grad, update, value=-1.0, out=scratch), candidate, out=grad_candidate)
        grad_sigmoid(torch.mul(grad_candidate, inner, out=scratch), reset, out=grad_reset)
        grad_recurrent = grad_gates.clone()
        grad_inner = grad_recurrent.chunk(3, dim=-1)[2].mul_(reset)
        return grad_gates, grad_recurrent, grad * update, grad_inner.sum_to_size(ctx.bias_shape)


@final
class LSTMStep(torch.autograd.Function):
    """Keeps i, f, o, the candidate and tanh c'."""

    @staticmethod
    def forward(ctx: Any, gates: Gates, recurrent: Gates, state: State, bias: None) -> State:
        size = state.shape[-1] // 2
        all_gates = gates + recurrent
        all_gates[..., : 3 * size].sigmoid_()
        input_gate, forget_gate, output_gate, candidate = all_gates.chunk(4, dim=-1)
        new = torch.empty_like(state)
        hidden, cell = new.chunk(2, dim=-1)
        torch.mul(forget_gate, state[..., size:], out=cell).addcmul_(input_gate, tanh_(candidate))
        squashed = tanh_(cell.clone(memory_format=torch.contiguous_format))
        torch.mul(output_gate, squashed, out=hidden)
        ctx.save_for_backward(all_gates, squashed, state)
        return new

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: State) -> tuple[Tensor | None, ...]:
        all_gates, squashed, state = ctx.saved_tensors
        input_gate, forget_gate, output_gate, candidate = all_gates.chunk(4, dim=-1)
        _, old_cell = state.chunk(2, dim=-1)
        grad_gates, grad_state = torch.empty_like(all_gates), torch.zeros_like(state)
        grad_input, grad_forget, grad_output, grad_candidate = grad_gates.chunk(4, dim=-1)
        grad_hidden, grad_cell = grad.chunk(2, dim=-1)
        scratch = torch.mul(grad_hidden, squashed)
        grad_sigmoid(scratch, output_gate, out=grad_output)
        grad_tanh(torch.mul(grad_hidden, output_gate, out=scratch), squashed, out=scratch)
        grad_cell = grad_cell + scratch
        grad_sigmoid(torch.mul(grad_cell, candidate, out=scratch), input_gate, out=grad_input)
        grad_sigmoid(torch.mul(grad_cell, old_cell, out=scratch), forget_gate, out=grad_forget)
        grad_tanh(torch.mul(grad_cell, input_gate, out=scratch), candidate, out=grad_candidate)
        torch.mul(grad_cell, forget_gate, out=grad_state[..., grad_cell.shape[-1] :])
        return grad_gates, grad_gates, grad_state, None


STEPS: dict[type, Any] = {GRU: GRUStep, LSTM: LSTMStep, nn.GRU: GRUStep, nn.LSTM: LSTMStep}
