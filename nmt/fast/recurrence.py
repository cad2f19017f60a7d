"""Unroll a decoder's recurrence unchanged, with weights, keys and values prepared once for all steps."""

from collections.abc import Mapping
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.attention.attention import Memory
from nmt.attention.normalizers import Normalizer
from nmt.fast.attention import share_memory
from nmt.fast.kernels import compute_dtype
from nmt.fast.products import Weight, share
from nmt.fast.recording import Recorder
from nmt.models.decoder import Decoder, DecoderState, Emission

RECORDER = "recorder"  # attribute of a decoder


def unroll(decoder: Decoder, gates: Float[Tensor, "step batch gates"], memory: Memory, state: DecoderState) -> Emission:
    """As `Decoder.unroll`, where gradients are wanted; on a GPU by a recording."""
    if not torch.is_grad_enabled():
        return type(decoder).unroll(decoder, gates, memory, state)
    dtype, product_dtype = state.layers[0].dtype, compute_dtype(state.layers[0])
    gates, memory = gates.to(dtype), Memory(memory.keys.to(dtype), memory.values.to(dtype), memory.mask)
    with torch.autocast(gates.device.type, enabled=False):
        if is_recorded(decoder, gates.device):
            return replay(decoder, product_dtype, gates, memory, state)
        return with_shared_weights(decoder, dict(decoder.named_parameters()), product_dtype, gates, memory, state)


def is_recorded(decoder: Decoder, device: torch.device) -> bool:
    """Return whether to use a recording: on a GPU, unless the weights of attention are drawn at random."""
    is_sampled = any(isinstance(module, Normalizer) and module.is_sampled for module in decoder.modules())
    return device.type == "cuda" and not is_sampled


def with_shared_weights(
    decoder: Decoder,
    parameters: Mapping[str, Tensor],
    product_dtype: torch.dtype,
    gates: Float[Tensor, "step batch gates"],
    memory: Memory,
    state: DecoderState,
) -> Emission:
    """Unroll with these parameters. Weights of linear maps, keys and values are shared: see `nmt.fast.products`.

    Everything but the products is in the precision of the parameters.
    """
    linear = {f"{name}.weight" for name, module in decoder.named_modules() if type(module) is nn.Linear}
    weights = {
        f"decoder.{name}": share(each, Weight(each, product_dtype)) if name in linear else each
        for name, each in parameters.items()
    }
    memory = share_memory(decoder.attention, memory)
    emission: Emission = torch.func.functional_call(Unrolled(decoder), weights, (gates, memory, state))
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


def replay(
    decoder: Decoder,
    product_dtype: torch.dtype,
    gates: Float[Tensor, "step batch gates"],
    memory: Memory,
    state: DecoderState,
) -> Emission:
    """As `with_shared_weights` from the first step on, by a recording (`Recorder`) of a batch of at least this size."""
    assert (state.position, state.past) == (0, None)
    names, parameters = zip(*decoder.named_parameters(), strict=True)
    layers = len(state.layers)
    states = state.layers if state.feedback is None else (*state.layers, state.feedback)

    def function(gates: Tensor, keys: Tensor, values: Tensor, mask: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        start = DecoderState(others[:layers], None if state.feedback is None else others[layers], 0)
        weights = dict(zip(names, others[len(states) :], strict=True))
        return with_shared_weights(decoder, weights, product_dtype, gates, Memory(keys, values, mask), start)[:3]

    (steps, rows), positions = gates.shape[:2], memory.mask.shape[1]
    mask = torch.cat((memory.mask, memory.mask.new_zeros(rows, rounded(positions) - positions)), dim=1)
    batch = (extended(extended(gates, 0), 1), *(extended(extended(each, 1), 0) for each in memory[:2]))
    arguments = (*batch, extended(mask, 0), *(extended(each, 0) for each in states), *parameters)
    recorder: Recorder = vars(decoder).setdefault(RECORDER, Recorder())
    hidden, context, weights = recorder.call(function, arguments, product_dtype, decoder.training)
    return Emission(hidden[:steps, :rows], context[:steps, :rows], weights[:steps, :rows, :positions])


def rounded(size: int) -> int:
    """Return a size rounded up to a multiple of 8, or of about a sixteenth of it: few differ, so few are recorded."""
    step = 1 << max(3, (size - 1).bit_length() - 4)
    return -(-size // step) * step


def extended(x: Tensor, axis: int) -> Tensor:
    """Repeat the last element of an axis up to a rounded size: padding without zeros, which some scores divide by."""
    sizes, size = list(x.shape), x.shape[axis]
    sizes[axis] = rounded(size) - size
    last = x.detach().narrow(axis, size - 1, 1)
    return torch.cat((x, last.expand(sizes)), dim=axis) if sizes[axis] else x
