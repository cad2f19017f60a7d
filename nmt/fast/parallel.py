"""What needs no step of its own: a layer over a whole sequence, and attention from all target positions at once."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nmt.attention.attention import Attention, AttentionMechanism, Memory, MultiHead
from nmt.attention.scores import Additive
from nmt.fast.layer import candidate_last, layer_of_cell
from nmt.models.cells import GRU, LSTM, Cell
from nmt.models.embedding import Embedded

PAIRS = 2**25  # numbers that comparing queries with keys, pair by pair, may hold at a time


def sequence(cell: Cell, inputs: Embedded, initial: Float[Tensor, "row state"]) -> Float[Tensor, "step row hidden"]:
    """Run a cell over a sequence from its initial state; return its hidden vectors."""
    if initial.device.type == "cuda":
        return fused(cell, inputs.map(lambda vectors: vectors), initial)
    return cell.hidden(layer_of_cell(cell, inputs.map(cell.inputs), initial))


def fused(
    cell: Cell, inputs: Float[Tensor, "step row input"], initial: Float[Tensor, "row state"]
) -> Float[Tensor, "step row hidden"]:
    """As `sequence`, by torch's own layer: cuDNN on a GPU. Its gates have another order, and it has two biases.

    Always in the precision of the parameters: where autocast is to bf16, torch has long had cuDNN compute in fp16,
    in which small gradients vanish.
    """
    with torch.autocast(inputs.device.type, enabled=False):
        return _fused(cell, inputs.to(cell.inputs.weight.dtype), initial)


def _fused(
    cell: Cell, inputs: Float[Tensor, "step row input"], initial: Float[Tensor, "row state"]
) -> Float[Tensor, "step row hidden"]:
    weights = (cell.inputs.weight, cell.recurrent.weight, cell.inputs.bias)
    options = (True, 1, 0.0, cell.training, False, False)  # biases, layers, dropout, training, both ways, batch first
    if isinstance(cell, LSTM):
        # Swapping the last two gates is its own inverse.
        weight, recurrent, bias = (candidate_last(each) for each in weights)
        states = tuple(part[None].contiguous() for part in initial.chunk(2, dim=1))
        output, _, _ = torch._VF.lstm(inputs, states, (weight, recurrent, bias, torch.zeros_like(bias)), *options)
        return output
    assert isinstance(cell, GRU)
    inside = nn.functional.pad(cell.candidate_bias, (2 * cell.hidden_size, 0))
    output, _ = torch._VF.gru(inputs, initial[None].contiguous(), (*weights, inside), *options)
    return output


def needs_much_memory(attention: AttentionMechanism) -> bool:
    """Tell whether comparing queries with keys makes a vector for each pair of them."""
    heads = list(attention.heads) if isinstance(attention, MultiHead) else [attention]
    return any(isinstance(head, Attention) and isinstance(head.score, Additive) for head in heads)


def attend_at_all_steps(
    attention: AttentionMechanism, hidden: Float[Tensor, "step row hidden"], memory: Memory
) -> tuple[Float[Tensor, "step row context"], Float[Tensor, "step row source"]]:
    """Query with the hidden vectors of all steps; return contexts and weights.

    Where pairs of query and key have a vector each, some steps are taken at a time, and computed again for the
    gradient, so that memory does not grow with target x source length.
    """
    queries = hidden.transpose(0, 1)
    steps = len(hidden)
    at_a_time = steps
    if needs_much_memory(attention):
        at_a_time = min(steps, max(1, PAIRS // memory.keys.numel()))
    contexts, weights = [], []
    for start in range(0, steps, at_a_time):
        positions = torch.arange(start, min(start + at_a_time, steps), device=hidden.device)
        arguments = (attention, queries[:, start : start + at_a_time], memory, positions)
        attended = attention(*arguments[1:]) if at_a_time == steps else checkpoint(*arguments, use_reentrant=False)
        contexts.append(attended.context)
        weights.append(attended.weights)
    return torch.cat(contexts, dim=1).transpose(0, 1), torch.cat(weights, dim=1).transpose(0, 1)
