"""A decoder's recurrence as it is written, with what all of its steps read made ready for all of them."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.stateless import _reparametrize_module

from nmt.attention.attention import Memory
from nmt.fast.attention import share_memory
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
    compute_dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else dtype
    with torch.autocast("cpu", enabled=False):
        weights = {
            f"{name}.weight": share(module.weight, Weight(module.weight, compute_dtype))
            for name, module in decoder.named_modules()
            if type(module) is nn.Linear
        }
        memory = share_memory(decoder.attention, memory.to(dtype))
        with _reparametrize_module(decoder, weights):
            return type(decoder).unroll(decoder, gates.to(dtype), memory, state)
