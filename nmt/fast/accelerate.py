"""`accelerate(model)`: replaces methods of a model's modules by faster functions, by the class of each module.

A replacement has the signature, the values and the gradients of the method that it replaces. Weights and their names
stay as they are, and so does every module of an unknown class: it runs as it is written.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.attention.attention import Attention
from nmt.attention.scores import Additive, Score
from nmt.attention.shapes import at_least_fp32
from nmt.fast import attention, cells, encoder, parallel, recurrence
from nmt.fast.dropout import dropout, dropout_along
from nmt.fast.projection import linear
from nmt.fast.words import read_words
from nmt.models.decoder import GNMT, Decoder, Luong
from nmt.models.encoder import Recurrent
from nmt.models.layers import GRU, LSTM, Dropout
from nmt.models.seq2seq import Seq2Seq

Model = TypeVar("Model", bound=nn.Module)
Replacements = dict[str, Callable[..., Any]]  # by the name of the method


class Replacement(partial[Any]):
    """A function with its module bound as first argument.

    Not a bound method: pickle would look that up in the module, by the function's own name.
    """


def accelerate(model: Model) -> Model:
    """Replace methods by faster functions, in place; return the model."""
    for module in model.modules():
        for name, function in replacements(module).items():
            setattr(module, name, Replacement(function, module))
    return model


def decelerate(model: Model) -> Model:
    """Undo `accelerate`; return the model."""
    for module in model.modules():
        for name in replaced_methods(module):
            delattr(module, name)
    return model


def replaced_methods(module: nn.Module) -> list[str]:
    """Return the names of a module's methods that are replaced."""
    return [name for name, value in vars(module).items() if isinstance(value, Replacement)]


@contextmanager
def without_fast_path(model: nn.Module) -> Iterator[None]:
    """Run the model without the fast path inside the context, so that its graph can be differentiated repeatedly."""
    was_accelerated = any(map(replaced_methods, model.modules()))
    decelerate(model)
    try:
        yield
    finally:
        if was_accelerated:
            accelerate(model)


def replacements(module: nn.Module) -> Replacements:
    """Return what replaces a module's methods."""
    if isinstance(module, Decoder):
        return decoder_replacements(module)
    if isinstance(module, Score) and not isinstance(module, Additive):
        return {"inner_product": attention.inner_product}
    known: dict[type, Replacements] = {
        nn.Dropout: {"forward": dropout},
        nn.Linear: {"forward": linear},
        Dropout: {"forward": dropout_along},
        GRU: {"forward": cells.forward},
        LSTM: {"forward": cells.forward},
        Attention: {"expectation": attention.expectation},
        Additive: {"forward": attention.additive, "score_pairs": attention.score_pairs},
        Recurrent: {"recur": encoder.recur},
        Seq2Seq: {"predict": predict},
    }
    return known.get(type(module), {})


def decoder_replacements(decoder: Decoder) -> Replacements:
    """Return what replaces a decoder's methods, as far as its attention and its linear maps allow."""
    feeds_nothing_back = isinstance(decoder, GNMT) or (isinstance(decoder, Luong) and decoder.feedback is None)
    is_quantized = not isinstance(decoder.stack.first.recurrent, nn.Linear)
    if feeds_nothing_back and not decoder.attention.stepwise and not is_quantized:
        return {"forward": parallel.decode, "read_words": read_words}
    return {"unroll": recurrence.unroll, "read_words": read_words}


def predict(model: Seq2Seq, features: Float[Tensor, "*batch feature"]) -> Float[Tensor, "*batch vocab"]:
    """Like `Seq2Seq.predict`, but in place if no gradient is needed: newly allocated pages would have to be zeroed."""
    logits = at_least_fp32(model.project(features))
    return torch.log_softmax(logits, dim=-1, out=None if torch.is_grad_enabled() else logits)
