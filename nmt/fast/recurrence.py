"""A decoder's recurrence, forwards and backwards, as one autograd node.

Autograd would keep a graph of some thirty nodes a step, allocate every intermediate anew, and form and add up the
gradient of every weight step by step. A chain writes into prepared memory, runs back through its steps once, and
forms each weight's gradient in one product over all steps. Values and gradients are those of `Decoder.unroll`, the
sums in another order.
"""

from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.attention.attention import Memory
from nmt.fast.arena import Arena
from nmt.fast.chains import CHAINS, OutputGrads
from nmt.models.decoder import Decoder, DecoderState, Emission


def unroll(decoder: Decoder, gates: Float[Tensor, "step batch gates"], memory: Memory, state: DecoderState) -> Emission:
    """As `Decoder.unroll`, by a chain."""
    states = [layer[:, 0] for layer in state.layers]
    parameters = [parameter for parameter in decoder.parameters() if parameter.requires_grad]
    settings = (decoder, memory.mask, len(states), torch.is_grad_enabled())
    tensors = (gates, memory.keys, memory.values, *states, *parameters)
    return Emission(*Recurrence.apply(*settings, *tensors))  # type: ignore[no-untyped-call]


@final
class Recurrence(torch.autograd.Function):
    """A chain as a function of gates, keys, values, initial states and parameters."""

    @staticmethod
    def forward(
        ctx: Any, decoder: Decoder, mask: Tensor, layers: int, keep: bool, *inputs: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return hidden vectors, contexts and weights of all steps, steps first."""
        ctx.set_materialize_grads(False)
        gates, keys, values = inputs[:3]
        states, parameters = inputs[3 : 3 + layers], inputs[3 + layers :]
        ctx.save_for_backward(*parameters)  # the chain reads them in place: autograd notices if they change
        ctx.dtypes, dtype = (gates.dtype, keys.dtype, values.dtype), states[0].dtype
        compute_dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else dtype
        arena = Arena.borrow(gates.device)
        with torch.autocast("cpu", enabled=False):
            memory = Memory(keys.to(dtype), values.to(dtype), mask)
            chain = CHAINS[type(decoder)](arena, decoder, gates.to(dtype), memory, states, compute_dtype)
            hidden, contexts, weights = (output.clone() for output in chain.run())
        if keep:
            ctx.chain = chain
        else:
            arena.give_back()
        return hidden, contexts, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *output_grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Run the chain back, once: its memory is used again after that."""
        chain, ctx.chain = ctx.chain, None
        if chain is None:
            raise RuntimeError("the fast path can be differentiated once: for more, set model.fast=off")
        parameters = ctx.saved_tensors
        with torch.autocast("cpu", enabled=False):
            grad_states = chain.run_back(OutputGrads(*output_grads))
            grad_inputs = (chain.grad_gates, *chain.attention.grad_memory())
            grads = {id(parameter): grad for parameter, grad in chain.grads()}
        copies = (grad.to(dtype, copy=True) for grad, dtype in zip(grad_inputs, ctx.dtypes, strict=True))
        found = (None, None, None, None, *copies, *grad_states, *(grads.get(id(each)) for each in parameters))
        chain.arena.give_back()
        return found
