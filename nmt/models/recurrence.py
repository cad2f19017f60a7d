"""The fast path of a decoder's recurrence: forwards and backwards in one autograd node.

Autograd would keep a graph of some thirty nodes a step, allocate every intermediate anew, and form and add up the
gradient of every weight step by step. Here a chain writes into prepared memory, runs back through its steps once,
and forms each weight's gradient in one product over all steps. The values and gradients are those of
`Decoder.unroll`, sums in another order.
"""

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nmt.attention.attention import Memory
from nmt.models.fast.arena import Arena
from nmt.models.fast.chains import Chain, Emitted, Task


def decode(
    make: Callable[[Task], Chain],
    parameters: Sequence[nn.Parameter],
    gates: Float[Tensor, "step batch gates"],
    memory: Memory,
    initial: Sequence[Float[Tensor, "batch 1 state"]],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (hidden vectors, contexts, attention weights) of all steps, steps first.

    `parameters` are those that the chain may yield gradients of.
    """
    states = [state[:, 0] for state in initial]
    arguments = (
        make,
        memory.mask,
        len(states),
        torch.is_grad_enabled(),
        gates,
        memory.keys,
        memory.values,
        *states,
        *parameters,
    )
    emitted: tuple[Tensor, Tensor, Tensor] = Recurrence.apply(*arguments)  # type: ignore[no-untyped-call]
    return emitted


@final
class Recurrence(torch.autograd.Function):
    """A chain as a function of gates, keys, values, initial states and parameters."""

    @staticmethod
    def forward(
        ctx: Any, make: Callable[[Task], Chain], mask: Tensor, layers: int, keep: bool, *inputs: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        gates, keys, values = inputs[:3]
        states, ctx.parameters = inputs[3 : 3 + layers], inputs[3 + layers :]
        device, dtype = gates.device.type, states[0].dtype
        kind = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else dtype
        ctx.dtypes = gates.dtype, keys.dtype, values.dtype
        arena = Arena.borrow(gates.device)
        with torch.autocast(device, enabled=False):
            memory = Memory(keys.to(dtype), values.to(dtype), mask)
            ctx.chain = make(Task(arena, gates.to(dtype), memory, states, kind))
            emitted: tuple[Tensor, Tensor, Tensor] = ctx.chain.run()
        if not keep:
            arena.give_back()
        return emitted

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *by_emitted: Tensor | None) -> tuple[Tensor | None, ...]:
        """Run the chain back, once: its memory is used again after that."""
        chain, ctx.chain = ctx.chain, None
        if chain is None:
            raise RuntimeError("the fast path can be differentiated once: for more, set model.fast=off")
        by_states = chain.run_back(Emitted(*by_emitted))
        by_keys, by_values = chain.attention.memory_gradients()
        found = {id(parameter): gradient for parameter, gradient in chain.gradients()}
        by_inputs = (chain.by_gates, by_keys, by_values)
        by_memory = tuple(gradient.to(dtype, copy=True) for gradient, dtype in zip(by_inputs, ctx.dtypes, strict=True))
        chain.arena.give_back()
        return None, None, None, None, *by_memory, *by_states, *(found.get(id(each)) for each in ctx.parameters)
