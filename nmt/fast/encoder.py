"""The recurrent encoder: on a CPU both directions of a layer side by side, on a GPU few calls around cuDNN."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from nmt.fast.cells import layer
from nmt.fast.dropout import keep_mask
from nmt.fast.projection import project
from nmt.fast.words import distinct_words
from nmt.models.encoder import Recurrent


def recur(
    encoder: Recurrent, source: Int[Tensor, "batch source"], source_lengths: Int[Tensor, " batch"]
) -> tuple[Float[Tensor, "batch source state"], Float[Tensor, "batch layers final"]]:
    """As `Recurrent.recur` on real tokens; states on padding are arbitrary. On a GPU torch's layers are the fastest."""
    if source.device.type != "cpu":
        return recur_packed(encoder, source, source_lengths)
    rnn, tokens = encoder.rnn, source.t()
    reversal = reversal_of(source_lengths, len(tokens))
    all_positions = torch.arange(tokens.numel(), device=tokens.device).view_as(tokens)
    words, indices = distinct_words(encoder.embedding, tokens) or (tokens, all_positions)
    inputs = encoder.embedding(words, step_axis=0)
    finals = []
    for index in range(rnn.num_layers):
        if index and rnn.dropout and rnn.training:
            inputs = inputs * keep_mask(inputs, rnn.dropout)
        inputs, final = bidirectional(rnn, index, inputs, indices, reversal)
        indices = all_positions
        finals.append(final)
    return inputs.transpose(0, 1).contiguous(), torch.stack(finals, dim=1)


def recur_packed(
    encoder: Recurrent, source: Int[Tensor, "batch source"], source_lengths: Int[Tensor, " batch"]
) -> tuple[Float[Tensor, "batch source state"], Float[Tensor, "batch layers final"]]:
    """As `Recurrent.recur`, packing and unpacking by one operation each, where torch needs one or more for each step.

    On a GPU, starting them would take longer than the layers themselves.
    """
    rnn, (rows, length) = encoder.rnn, source.shape
    order = source_lengths.argsort(descending=True, stable=True)
    is_real = torch.arange(int(source_lengths.max()))[:, None] < source_lengths[order]  # by step and sorted row
    step, row = is_real.nonzero(as_tuple=True)
    indices = (order[row] * length + step).to(source.device, non_blocking=True)
    ordering = torch.stack((order, order.argsort())).to(source.device, non_blocking=True)
    vectors = encoder.embedding(source).flatten(0, 1).index_select(0, indices)
    with torch.autocast(source.device.type, enabled=False):
        packed, last = rnn(PackedSequence(vectors.to(rnn.weight_hh_l0.dtype), is_real.sum(dim=1), *ordering))
    states = packed.data.new_zeros(rows * length, packed.data.shape[1]).index_copy(0, indices, packed.data)
    return states.view(rows, length, -1), encoder.last_backward(last)


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
    weight, bias, recurrent, candidate_bias = weights_of(rnn, index)
    both = project(inputs, weight.flatten(0, 1), bias.flatten()).to(weight.dtype)
    # One gather for both: of each vector's two rows of gates the first is read ahead, the second turned round.
    order = torch.stack((2 * indices, 2 * indices.flatten()[reversal].view_as(indices) + 1))
    gates = nn.functional.embedding(order, both.view(-1, weight.shape[1]))
    size = rnn.hidden_size
    initial = weight.new_zeros(2, gates.shape[2], size * (2 if isinstance(rnn, nn.LSTM) else 1))
    states, states_back = layer(type(rnn), gates, initial, recurrent, candidate_bias).unbind()
    states_back = nn.functional.embedding(reversal, states_back.flatten(0, 1)).view_as(states_back)
    return torch.cat((states[..., :size], states_back[..., :size]), dim=-1), states_back[0]


def reversal_of(lengths: Int[Tensor, " row"], steps: int) -> Int[Tensor, " step_row"]:
    """Return for each position of a flattened [step, row] the position of the word that is there when turned round."""
    step = torch.arange(steps, device=lengths.device)[:, None]
    last = lengths[None] - 1
    turned = torch.where(step <= last, last - step, step)
    return (turned * len(lengths) + torch.arange(len(lengths), device=lengths.device)).flatten()


def weights_of(rnn: nn.GRU | nn.LSTM, index: int) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return the weights of both directions of a layer, in the order of gates of our cells.

    Those of inputs [2, gates, input], biases [2, gates], those of states [2, gates, hidden], and of a GRU the bias
    inside its candidate [2, hidden]: torch's other biases are added up.
    """
    inputs, weight, bias, extra = (
        torch.stack([getattr(rnn, f"{name}_l{index}{way}") for way in ("", "_reverse")])
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    if isinstance(rnn, nn.LSTM):
        # Reordered before they are added: autograd gives both terms of a sum one tensor as gradient, which the
        # parameters would keep, and whoever scales both, or adds to both, would do it twice.
        inputs, weight, bias, extra = (candidate_last(each, dim=1) for each in (inputs, weight, bias, extra))
        return inputs, bias + extra, weight, None
    gates, candidate = extra.split((2 * rnn.hidden_size, rnn.hidden_size), dim=1)
    return inputs, bias + nn.functional.pad(gates, (0, rnn.hidden_size)), weight, candidate


def candidate_last(weight: Float[Tensor, "*gates_size"], dim: int = 0) -> Float[Tensor, "*gates_size"]:
    """Reorder LSTM gates from torch's order, i f g o, to ours, i f o g, or back: the swap is its own inverse."""
    input_gate, forget_gate, candidate, output_gate = weight.chunk(4, dim)
    return torch.cat((input_gate, forget_gate, output_gate, candidate), dim)
