"""The recurrent encoder on a CPU: both directions of a layer side by side, equal words sharing their products."""

from typing import Any, NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nmt.fast.cells import Recurrent, layer
from nmt.fast.dropout import keep_mask
from nmt.fast.projection import project
from nmt.fast.words import distinct_words
from nmt.models.encoder import Recurrent as RecurrentEncoder


def recur(
    encoder: RecurrentEncoder, source: Int[Tensor, "batch source"], source_lengths: Int[Tensor, " batch"]
) -> tuple[Float[Tensor, "batch source state"], Float[Tensor, "batch layers final"]]:
    """As `Recurrent.recur` on real tokens; states on padding are arbitrary. On a GPU torch's layers are the fastest."""
    if source.device.type != "cpu":
        return RecurrentEncoder.recur(encoder, source, source_lengths)
    rnn, tokens = encoder.rnn, source.t()
    reversal = reversal_of(source_lengths, len(tokens))
    all_positions = torch.arange(tokens.numel()).view_as(tokens)
    words, indices = distinct_words(encoder.embedding, tokens) or (tokens, all_positions)
    inputs = encoder.embedding(words, steps=0)
    finals = []
    for index in range(rnn.num_layers):
        if index and rnn.dropout and rnn.training:
            inputs = inputs * keep_mask(inputs, rnn.dropout)
        inputs, final = bidirectional(rnn, index, inputs, indices, reversal)
        indices = all_positions
        finals.append(final)
    return inputs.transpose(0, 1).contiguous(), torch.stack(finals, dim=1)


def bidirectional(
    rnn: nn.GRU | nn.LSTM,
    index: int,
    inputs: Float[Tensor, "*words input"],
    indices: Int[Tensor, "step row"],
    reversal: Int[Tensor, " step_row"],
) -> tuple[Float[Tensor, "step row hidden_2"], Float[Tensor, "row state"]]:
    """Run both directions of one of torch's layers; return outputs, and the backward direction's last states.

    Args:
        rnn: the layers.
        index: of the layer.
        inputs: vectors.
        indices: of each position, the index of its vector in flattened `inputs`.
        reversal: turns each sentence round in place (see `reversal_of`). The padding behind a sentence is read after
            all of it, in both directions, so it changes nothing but its own outputs.
    """
    ahead, back = weights_of(rnn, f"l{index}"), weights_of(rnn, f"l{index}_reverse")
    weight, bias = torch.cat((ahead.inputs, back.inputs)), torch.cat((ahead.bias, back.bias))
    both = project(inputs, weight, bias).to(weight.dtype)
    # One gather for both: of each vector's two rows of gates the first is read ahead, the second turned round.
    order = torch.stack((2 * indices, 2 * indices.flatten()[reversal].view_as(indices) + 1))
    gates = nn.functional.embedding(order, both.view(-1, weight.shape[0] // 2))
    recurrent = torch.stack((ahead.recurrent, back.recurrent))
    candidate_bias = None
    if ahead.candidate_bias is not None and back.candidate_bias is not None:
        candidate_bias = torch.stack((ahead.candidate_bias, back.candidate_bias))
    size = rnn.hidden_size
    initial = recurrent.new_zeros(2, gates.shape[2], size * (2 if isinstance(rnn, nn.LSTM) else 1))
    states, states_back = layer(type(rnn), gates, initial, Recurrent(recurrent, candidate_bias)).unbind()
    states_back = Permuted.apply(states_back, reversal)  # type: ignore[no-untyped-call]
    return torch.cat((states[..., :size], states_back[..., :size]), dim=-1), states_back[0]


def reversal_of(lengths: Int[Tensor, " row"], steps: int) -> Int[Tensor, " step_row"]:
    """Return for each position of a flattened [step, row] the position of the word that is there when turned round."""
    step, last = torch.arange(steps)[:, None], lengths[None] - 1
    turned = torch.where(step <= last, last - step, step)
    return (turned * len(lengths) + torch.arange(len(lengths))).flatten()


class Weights(NamedTuple):
    """One direction of one of torch's layers, in the order of gates of our cells."""

    inputs: Float[Tensor, "gates input"]
    bias: Float[Tensor, " gates"]
    recurrent: Float[Tensor, "gates hidden"]
    candidate_bias: Float[Tensor, " hidden"] | None


def weights_of(rnn: nn.GRU | nn.LSTM, suffix: str) -> Weights:
    """Return the weights of a direction; torch's two biases are added up but for that inside a GRU's candidate."""
    inputs, recurrent, bias, extra = (
        getattr(rnn, f"{name}_{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    if isinstance(rnn, nn.LSTM):
        return Weights(candidate_last(inputs), candidate_last(bias + extra), candidate_last(recurrent), None)
    opening, candidate = extra.split((2 * rnn.hidden_size, rnn.hidden_size))
    return Weights(inputs, bias + nn.functional.pad(opening, (0, rnn.hidden_size)), recurrent, candidate)


def candidate_last(weight: Float[Tensor, "gates *size"]) -> Float[Tensor, "gates *size"]:
    """Reorder the gates of torch's LSTM, i f g o, as ours are: i f o g. It is its own inverse but for the names."""
    enter, forget, candidate, out = weight.chunk(4)
    return torch.cat((enter, forget, out, candidate))


@final
class Permuted(torch.autograd.Function):
    """Rows of a flattened [step, row] in another order; the order must be its own inverse."""

    @staticmethod
    def forward(ctx: Any, x: Float[Tensor, "step row size"], order: Int[Tensor, " step_row"]) -> Tensor:
        """Return the rows in that order."""
        ctx.order = order
        return x.flatten(0, 1).index_select(0, order).view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Undo the order."""
        return grad.flatten(0, 1).index_select(0, ctx.order).view_as(grad), None
