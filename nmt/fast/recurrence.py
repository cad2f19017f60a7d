"""The fast path of a decoder's recurrence: forwards and backwards in one autograd node.

Autograd would keep a graph of some thirty nodes a step, allocate every intermediate anew, and form and add up the
gradient of every weight step by step. Here a chain writes into prepared memory, runs back through its steps once,
and forms each weight's gradient in one product over all steps. The values and gradients are those of
`Decoder.unroll`, sums in another order.
"""

from collections.abc import Sequence
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmt.attention.attention import Memory
from nmt.fast.chains import Emitted, Given
from nmt.fast.execution import Eager, Maker
from nmt.fast.recording import execution


def decode(
    maker: Maker,
    gates: Float[Tensor, "step batch gates"],
    memory: Memory,
    initial: Sequence[Float[Tensor, "batch 1 state"]],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (hidden vectors, contexts, attention weights) of all steps, steps first."""
    states = [state[:, 0] for state in initial]
    parameters = [parameter for parameter in maker.parameters() if parameter.requires_grad]
    arguments = (
        maker,
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
        ctx: Any, maker: Maker, mask: Tensor, layers: int, keep: bool, *inputs: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        gates, keys, values = inputs[:3]
        states, parameters = inputs[3 : 3 + layers], inputs[3 + layers :]
        ctx.save_for_backward(*parameters)  # the chain reads them where they are: autograd notices if they change
        ctx.device, dtype = gates.device.type, states[0].dtype
        kind = torch.get_autocast_dtype(ctx.device) if torch.is_autocast_enabled(ctx.device) else dtype
        ctx.dtypes = gates.dtype, keys.dtype, values.dtype
        with torch.autocast(ctx.device, enabled=False):
            given = Given(gates.to(dtype), Memory(keys.to(dtype), values.to(dtype), mask), states, kind)
            chosen = execution(maker, given) if keep else Eager(maker, given)
            emitted = chosen.run()
        if keep:
            ctx.execution = chosen
        else:
            chosen.close()
        return emitted

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *by_emitted: Tensor | None) -> tuple[Tensor | None, ...]:
        """Run the chain back, once: its memory is used again after that."""
        chosen, ctx.execution = ctx.execution, None
        if chosen is None:
            raise RuntimeError("the fast path can be differentiated once: for more, set model.fast=off")
        parameters = ctx.saved_tensors
        with torch.autocast(ctx.device, enabled=False):
            found = chosen.run_back(Emitted(*by_emitted))
        by_inputs = tuple(gradient.to(dtype, copy=True) for gradient, dtype in zip(found[:3], ctx.dtypes, strict=True))
        chosen.close()
        by_parameters = (found.parameters.get(id(each)) for each in parameters)
        return None, None, None, None, *by_inputs, *found.states, *by_parameters
