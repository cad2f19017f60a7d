"""Linear maps in 8-bit integers, for translating on a CPU."""

import warnings
from typing import TypeVar

import torch
from torch import nn

from nmt.errors import UserError
from nmt.models.seq2seq import Seq2Seq

Model = TypeVar("Model", bound=nn.Module)


def quantize(model: Model) -> Model:
    """Replace the linear maps of attention, decoder and output layer, in place, by ones of 8-bit integers.

    y = W x becomes s_W s_x (W_q (x_q - z_x)) with W_q = round(W / s_W) and x_q = round(x / s_x) + z_x. s_W is the
    largest magnitude of each row over 127.5, computed once; s_x and z_x follow from the range of all x of a product,
    computed each time. This is PyTorch's dynamic quantization, with the arithmetic of Jacob et al. (2018), who fix the
    ranges. Maps with a single input or output gain nothing and are left alone, as are the encoder, which runs once per
    sentence, and the embeddings. Of an ensemble every model is quantized. The model can only translate afterwards.
    Raises UserError if it is not on a CPU.
    """
    from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic

    device = next(model.parameters()).device
    if device.type != "cpu":
        raise UserError(f"int8 translates on a CPU, not on {device.type}: add device=cpu, or choose bf16")
    for member in [module for module in model.modules() if isinstance(module, Seq2Seq)]:
        chosen = {
            name: per_channel_dynamic_qconfig
            for name, module in member.named_modules()
            if type(module) is nn.Linear and min(module.weight.shape) > 1 and not name.startswith("encoder.")
        }
        with warnings.catch_warnings():  # deprecation in favor of another package
            warnings.simplefilter("ignore")
            quantize_dynamic(member, chosen, dtype=torch.qint8, inplace=True)
    return model
