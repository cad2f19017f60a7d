"""`accelerate(model)`: replaces methods of a model's modules by hand-written twins, by the class of each module.

A twin has the signature and the values of the method that it replaces, and its gradients. Weights and their names stay
as they are, and so does every module of an unknown class: it runs as it is written.
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
from nmt.fast import attention, cells, encoder, parallel, recurrence
from nmt.fast.dropout import dropout, dropout_along
from nmt.fast.projection import linear
from nmt.fast.words import read_words
from nmt.models.decoder import Decoder, Gnmt, Luong
from nmt.models.encoder import Recurrent
from nmt.models.layers import GRU, LSTM, Dropout
from nmt.models.seq2seq import Seq2Seq

Model = TypeVar("Model", bound=nn.Module)
Twins = dict[str, Callable[..., Any]]  # by the name of the method


class Twin(partial[Any]):
    """A function with its module bound as first argument.

    Not a bound method: pickle would look that up in the module, by the function's own name.
    """


def accelerate(model: Model) -> Model:
    """Replace methods by their faster twins, in place; return the model."""
    for module in model.modules():
        for name, twin in twins(module).items():
            setattr(module, name, Twin(twin, module))
    return model


def decelerate(model: Model) -> Model:
    """Undo `accelerate`; return the model."""
    for module in model.modules():
        for name in replaced(module):
            delattr(module, name)
    return model


def replaced(module: nn.Module) -> list[str]:
    """Return the names of a module's methods that are replaced by twins."""
    return [name for name, value in vars(module).items() if isinstance(value, Twin)]


@contextmanager
def restored(model: nn.Module) -> Iterator[None]:
    """Run the model without the fast path inside the context, so that its graph can be differentiated repeatedly."""
    was_accelerated = any(map(replaced, model.modules()))
    decelerate(model)
    try:
        yield
    finally:
        if was_accelerated:
            accelerate(model)


def twins(module: nn.Module) -> Twins:
    """Return the twins of a module's methods."""
    if isinstance(module, Decoder):
        return decoder_twins(module)
    if isinstance(module, Score) and not isinstance(module, Additive):
        return {"match": attention.match}
    known: dict[type, Twins] = {
        nn.Dropout: {"forward": dropout},
        nn.Linear: {"forward": linear},
        Dropout: {"forward": dropout_along},
        GRU: {"forward": cells.forward},
        LSTM: {"forward": cells.forward},
        Attention: {"average": attention.average},
        Additive: {"forward": attention.additive, "compare": attention.compare},
        Recurrent: {"recur": encoder.recur},
        Seq2Seq: {"predict": predict},
    }
    return known.get(type(module), {})


def decoder_twins(decoder: Decoder) -> Twins:
    """Return the twins of a decoder's methods, as far as its attention and its linear maps allow."""
    found: Twins = {"read_words": read_words, "unroll": recurrence.unroll}
    if decoder.attention.stepwise or not isinstance(decoder.stack.first.recurrent, nn.Linear):  # else quantized
        return found
    if isinstance(decoder, Gnmt) or (isinstance(decoder, Luong) and decoder.feedback is None):
        return {"forward": parallel.decode, "read_words": read_words}
    return found


def predict(model: Seq2Seq, features: Float[Tensor, "*batch feature"]) -> Float[Tensor, "*batch vocab"]:
    """Like `Seq2Seq.predict`, but in place if no gradient is needed: newly allocated pages would have to be zeroed."""
    logits = model.project(features)
    in_place = not torch.is_grad_enabled() and logits.dtype == torch.promote_types(logits.dtype, torch.float32)
    return torch.log_softmax(logits, dim=-1, out=logits if in_place else None)
