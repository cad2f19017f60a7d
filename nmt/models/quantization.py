"""Linear maps in 8-bit integers, for translating on a CPU."""

import warnings
from typing import TypeVar

import torch
from torch import nn

from nmt.errors import UserError
from nmt.models.seq2seq import Seq2Seq

Model = TypeVar("Model", bound=nn.Module)


def quantize(model: Model) -> Model:
    """Quantize a translation model, or each of those in an ensemble, in place; see `quantize_one`."""
    for module in list(model.modules()):
        if isinstance(module, Seq2Seq):
            quantize_one(module)
    return model


def quantize_one(model: Seq2Seq) -> None:
    """Replace the linear maps of attention, decoder and output layer, in place, by ones of 8-bit integers.

    y = W x becomes s_W s_x (W_q (x_q - z_x)) with W_q = round(W / s_W), s_W the greatest magnitude of each row over
    127.5, found once, and x_q = round(x / s_x) + z_x by the range of all the x of a product, found each time: dynamic
    quantization, by PyTorch, with the arithmetic of Jacob et al. (2018), whose ranges are fixed. Maps from or to a
    single number gain nothing and stay, as do the encoder, which runs once a sentence, and the embeddings.
    The model can only translate afterwards.

    Raises:
        UserError: the model is not on a CPU.
    """
    from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic

    device = next(model.parameters()).device
    if device.type != "cpu":
        raise UserError(f"int8 translates on a CPU, not on {device.type}: add device=cpu, or choose bf16")
    chosen = {
        name: per_channel_dynamic_qconfig
        for name, module in model.named_modules()
        if type(module) is nn.Linear and min(module.weight.shape) > 1 and not name.startswith("encoder.")
    }
    with warnings.catch_warnings():  # of another package that shall replace it one day
        warnings.simplefilter("ignore")
        quantize_dynamic(model, chosen, dtype=torch.qint8, inplace=True)
