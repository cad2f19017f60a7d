"""The two graphs of a model, encoder and one step of the search, as ONNX files, in floats and in 8-bit integers.

They are exported by tracing: the exporter based on torch.export takes fifty times as long and does not support packed
sequences. Values that tracing would freeze into constants are refused here, or found by `nmt.exporting.check`.
"""

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import final

import onnx
import torch
from jaxtyping import Int
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor, nn
from torch.jit._trace import TracerWarning

from nmt.attention.attention import Memory
from nmt.errors import UserError, is_out_of_memory
from nmt.models.decoder import DecoderState
from nmt.models.encoder import mask_of
from nmt.models.seq2seq import SearchState, Seq2Seq
from nmt.text.tokenizer import BOS, EOS

OPSET = 17
MEMORY = Memory._fields
BATCH, BEAM, SOURCE = "batch", "beam", "source"  # names of the axes that have any size
TORCH = str(Path(torch.__file__).parent)
PRODUCTS = ("MatMul", "Gemm")

Axes = dict[str, tuple[str, ...]]  # the names of each tensor's axes, in order, as far as these have any size


@final
class EncoderGraph(nn.Module):
    """source, lengths -> keys, values, mask, and the state before the first step, of one hypothesis per sentence."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model
        self.states = state_sizes(model)
        self.inputs: Axes = {"source": (BATCH, SOURCE), "lengths": (BATCH,)}
        self.outputs: Axes = {**dict.fromkeys(MEMORY, (BATCH, SOURCE)), **dict.fromkeys(self.states, (BATCH,))}

    def forward(self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, " batch"]) -> tuple[Tensor, ...]:
        """Encode sentences; `lengths` counts their tokens, of which the last is the end mark."""
        mask = mask_of(lengths, source.shape[1])
        decoder, memory = self.model.start(source, mask, lengths)
        past = torch.zeros_like(mask, dtype=memory.values.dtype)[:, None] if "past" in self.states else None
        states = zip(self.states.items(), tensors_of(decoder._replace(past=past)), strict=True)
        # The exporter does not find the shape of every tensor that is filled with zeros.
        return *memory, *(x if name == "past" else x.reshape(-1, 1, size) for (name, size), x in states)


@final
class StepGraph(nn.Module):
    """tokens, position, memory, states -> log-probabilities of the next token, attention weights, the next states."""

    def __init__(self, model: Seq2Seq) -> None:
        super().__init__()
        self.model = model
        self.states = state_sizes(model)
        memory = dict.fromkeys(MEMORY, (BATCH, SOURCE))
        states = {name: (BATCH, BEAM, SOURCE) if name == "past" else (BATCH, BEAM) for name in self.states}
        self.inputs: Axes = {"tokens": (BATCH, BEAM), "position": (), **memory, **states}
        self.outputs: Axes = {"log_probs": (BATCH, BEAM), "weights": (BATCH, BEAM, SOURCE)}
        self.outputs |= {f"next_{name}": axes for name, axes in states.items()}

    def forward(
        self, tokens: Int[Tensor, "batch beam"], position: Int[Tensor, " 1"], *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        """Extend every hypothesis by a token; `position` is the number of steps done."""
        states = dict(zip(self.states, inputs[len(MEMORY) :], strict=True))
        feedback, past = states.pop("feedback", None), states.pop("past", None)
        decoder = DecoderState(tuple(states.values()), feedback, position, past)
        output = self.model.step(tokens, SearchState(decoder, Memory(*inputs[: len(MEMORY)])))
        return output.log_probs, output.weights, *tensors_of(output.state.decoder)


def tensors_of(state: DecoderState) -> list[Tensor]:
    """Return the tensors of a decoder's state, in the order of `state_sizes`."""
    return [*state.layers, *(part for part in (state.feedback, state.past) if part is not None)]


def state_sizes(model: Seq2Seq) -> dict[str, int]:
    """Return name and size of each tensor that a step hands to the next, by doing one."""
    source = torch.tensor([[EOS]])
    with torch.no_grad():
        start = model.start(source, source == EOS, torch.tensor([1]))
        state = model.step(torch.tensor([[BOS]]), start).state.decoder
    names = [f"layer_{number}" for number in range(len(state.layers))]
    names += [name for name in ("feedback", "past") if getattr(state, name) is not None]
    return {name: x.shape[2] for name, x in zip(names, tensors_of(state), strict=True)}


@torch.no_grad()
def write_graphs(model: Seq2Seq, encoder: Path, step: Path) -> None:
    """Write the graphs of a model in evaluation mode; raise UserError if a part of it has no fixed graph."""
    source, lengths = torch.full((3, 5), EOS), torch.tensor([4, 5, 2])
    encoder_graph, step_graph = EncoderGraph(model), StepGraph(model)
    encoded = encoder_graph(source, lengths)
    # No two axes have one size, and none has size 1: tracing could take them for each other, or broadcast.
    memory, states = encoded[: len(MEMORY)], (state.repeat(1, 4, 1) for state in encoded[len(MEMORY) :])
    trace(encoder_graph, (source, lengths), encoder)
    trace(step_graph, (torch.full((3, 4), BOS), torch.tensor([6]), *memory, *states), step)


def trace(graph: EncoderGraph | StepGraph, arguments: Sequence[Tensor], path: Path) -> None:
    """Write a graph by tracing it; raise UserError if ONNX lacks an operation, or Python code depends on values."""
    with tracing_problems() as problems:
        try:
            torch.onnx.export(
                graph.eval(),
                tuple(arguments),
                str(path),
                dynamo=False,
                opset_version=OPSET,
                input_names=list(graph.inputs),
                output_names=list(graph.outputs),
                dynamic_axes={name: dict(enumerate(axes)) for name, axes in (graph.inputs | graph.outputs).items()},
            )
        except Exception as error:
            if is_out_of_memory(error) or isinstance(error, OSError):
                raise
            problems.append(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
    if problems:
        raise UserError(f"this model cannot be exported: its {path.stem} has no fixed graph: {problems[-1]}")


@contextlib.contextmanager
def tracing_problems() -> Iterator[list[str]]:
    """Yield a list of reasons why a graph cannot be traced; warnings about frozen constants are added at the end.

    Those from torch's own recurrent layers are left out: they concern size checks, and a value that ONNX's layers do
    not need.
    """
    problems: list[str] = []
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # a kernel that ONNX does not have
    try:
        with warnings.catch_warnings(record=True) as caught, suppressed_output():
            warnings.simplefilter("always")
            yield problems
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
    for warning in caught:
        if issubclass(warning.category, TracerWarning) and not warning.filename.startswith(TORCH):
            problems.append(f"{warning.filename} line {warning.lineno}: {str(warning.message).split('. ')[0]}")


@contextlib.contextmanager
def suppressed_output() -> Iterator[None]:
    """Suppress what C++ prints: shapes that it cannot infer, and the whole graph where it fails."""
    sys.stdout.flush()
    copies = {stream: os.dup(stream) for stream in (1, 2)}
    null_device = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in copies:
            os.dup2(null_device, stream)
        yield
    finally:
        for stream, copy in copies.items():
            os.dup2(copy, stream)
            os.close(copy)
        os.close(null_device)


def quantize_graph(graph: Path, path: Path) -> None:
    """Write a graph with linear maps, embeddings and LSTMs in 8-bit integers: onnxruntime's dynamic quantization.

    Weights have one scale per output and use 7 bits only: processors without instructions for byte products add pairs
    of them in 16 bits, which 8-bit weights could overflow. Products with a vector, or with a single output, are kept.
    """
    logger = logging.getLogger()  # advises to preprocess the graph, which changes nothing here
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        quantize_dynamic(
            graph,
            path,
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=narrow_products(graph),
        )
    finally:
        logger.setLevel(level)


def narrow_products(path: Path) -> list[str]:
    """Return the names of a graph's products with a vector, or with a matrix of one row or column."""
    graph = onnx.load(path).graph
    sizes = {weight.name: min(weight.dims) if len(weight.dims) > 1 else 1 for weight in graph.initializer}
    return [node.name for node in graph.node if node.op_type in PRODUCTS and sizes.get(node.input[1], 2) == 1]
