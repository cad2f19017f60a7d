"""Unroll a decoder's recurrence unchanged, with weights, keys and values prepared once for all steps."""

from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.attention.attention import Memory
from nmt.fast.attention import share_memory
from nmt.fast.kernels import compute_dtype
from nmt.fast.products import Weight, share
from nmt.models.decoder import Decoder, DecoderState, Emission


def unroll(decoder: Decoder, gates: Float[Tensor, "step batch gates"], memory: Memory, state: DecoderState) -> Emission:
    """As `Decoder.unroll`, where gradients are wanted, on a CPU.

    Weights of linear maps, keys and values are shared: `nmt.fast.products` says what that saves. Everything but the
    products is in the precision of the parameters.
    """
    if gates.device.type != "cpu" or not torch.is_grad_enabled():
        return type(decoder).unroll(decoder, gates, memory, state)
    dtype = state.layers[0].dtype
    product_dtype = compute_dtype(state.layers[0])
    with torch.autocast("cpu", enabled=False):
        weights = {
            f"decoder.{name}.weight": share(module.weight, Weight(module.weight, product_dtype))
            for name, module in decoder.named_modules()
            if type(module) is nn.Linear
        }
        memory = Memory(memory.keys.to(dtype), memory.values.to(dtype), memory.mask)
        memory = share_memory(decoder.attention, memory)
        emission: Emission = torch.func.functional_call(Unrolled(decoder), weights, (gates.to(dtype), memory, state))
        return emission


@final
class Unrolled(nn.Module):
    """`Decoder.unroll` as a module, so that it can be called with other tensors in the place of its parameters."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, *arguments: Any) -> Emission:
        """Unroll."""
        return type(self.decoder).unroll(self.decoder, *arguments)
