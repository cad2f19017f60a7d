"""Decoders that feed nothing back: a layer reads its whole sequence at once, and attention is one batched product."""

import warnings

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nmt.attention.attention import AttentionMechanism, Memory
from nmt.attention.scores import Additive
from nmt.fast.cells import candidate_bias, layer
from nmt.fast.encoder import candidate_last
from nmt.models.decoder import GNMT, Decoded, DecoderState, Luong
from nmt.models.layers import GRU, LSTM, Cell

# Numbers that comparing queries with keys, pair by pair, may hold at a time: on a CPU about as many as its cache.
PAIRS_CPU, PAIRS_GPU = 2**22, 2**27

# cuDNN joins the weights of such a layer at each call, in much less time than the layer takes.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk of memory")


def decode(
    decoder: GNMT | Luong, target_in: Int[Tensor, "batch target"], memory: Memory, state: DecoderState
) -> Decoded:
    """As `Decoder.forward`, layer by layer; on a GPU each layer is torch's own."""
    embedded = decoder.embedding(target_in.t(), step_axis=0)
    first, *upper = ((cell, initial[:, 0]) for cell, initial in zip(decoder.stack.cells, state.layers, strict=True))
    hidden = sequence(first[0], embedded, first[1])
    if isinstance(decoder, Luong):
        for cell, initial in upper:
            hidden = sequence(cell, decoder.stack.dropout(hidden), initial)
        context, weights = attend_at_all_steps(decoder.attention, hidden, memory)
        hidden = decoder.attentional(torch.cat((context, hidden), dim=-1)).tanh()
    else:
        context, weights = attend_at_all_steps(decoder.attention, hidden, memory)
        for index, (cell, initial) in enumerate(upper):
            new = sequence(cell, decoder.join(hidden, context), initial)
            hidden = new + hidden if index else new
    features = decoder.readout(hidden, context, decoder.readout.project_word(embedded))
    return Decoded(features.transpose(0, 1), weights.transpose(0, 1))


def sequence(
    cell: Cell, inputs: Float[Tensor, "step row input"], initial: Float[Tensor, "row state"]
) -> Float[Tensor, "step row hidden"]:
    """Run a cell over a sequence from its initial state; return its hidden vectors."""
    if initial.device.type != "cpu":
        return torch_layer(cell, inputs, initial)
    return cell.hidden(layer(type(cell), cell.inputs(inputs), initial, cell.recurrent.weight, candidate_bias(cell)))


def torch_layer(
    cell: Cell, inputs: Float[Tensor, "step row input"], initial: Float[Tensor, "row state"]
) -> Float[Tensor, "step row hidden"]:
    """As `sequence`, by torch's own layer: cuDNN on a GPU. Its gates have another order, and it has two biases.

    In the precision of the parameters: under autocast to bf16 torch has cuDNN compute in fp16, in which small
    gradients vanish.
    """
    with torch.autocast(inputs.device.type, enabled=False):
        inputs = inputs.to(cell.inputs.weight.dtype)
        weights = (cell.inputs.weight, cell.recurrent.weight, cell.inputs.bias)
        options = (True, 1, 0.0, cell.training, False, False)  # biases, layers, dropout, training, both ways, batch
        if isinstance(cell, LSTM):
            weight, recurrent, bias = (candidate_last(each) for each in weights)  # swapping two is its own inverse
            states = tuple(part[None].contiguous() for part in initial.chunk(2, dim=1))
            return torch.lstm(inputs, states, (weight, recurrent, bias, torch.zeros_like(bias)), *options)[0]
        assert isinstance(cell, GRU)
        candidate_bias = nn.functional.pad(cell.candidate_bias, (2 * cell.hidden_size, 0))
        return torch.gru(inputs, initial[None].contiguous(), (*weights, candidate_bias), *options)[0]


def attend_at_all_steps(
    attention: AttentionMechanism, hidden: Float[Tensor, "step row hidden"], memory: Memory
) -> tuple[Float[Tensor, "step row context"], Float[Tensor, "step row source"]]:
    """Query with the hidden vectors of all steps; return contexts and weights.

    Where pairs of query and key have a vector each, some steps are taken at a time, and computed again for the
    gradient, so that memory does not grow with target x source length.
    """
    queries = hidden.transpose(0, 1)
    steps = len(hidden)
    pairwise = any(isinstance(part, Additive) for part in attention.modules())
    most_pairs = PAIRS_CPU if hidden.device.type == "cpu" else PAIRS_GPU
    count = min(steps, max(1, most_pairs // memory.keys.numel())) if pairwise else steps
    contexts, weights = [], []
    for start in range(0, steps, count):
        positions = torch.arange(start, min(start + count, steps), device=hidden.device)
        part = queries[:, start : start + count]
        if count == steps:
            attended = attention(part, memory, positions)
        else:
            attended = checkpoint(attention, part, memory, positions, use_reentrant=False)
        contexts.append(attended.context)
        weights.append(attended.weights)
    return torch.cat(contexts, dim=1).transpose(0, 1), torch.cat(weights, dim=1).transpose(0, 1)
