"""How far the outputs of graphs are from those of the model that they were exported from."""

from pathlib import Path

import numpy as np
import torch
from onnxruntime import InferenceSession
from torch import Tensor

from nmt.data.batch import pad
from nmt.errors import UserError, one_line
from nmt.exporting.graphs import MEMORY, EncoderGraph, StepGraph
from nmt.models.seq2seq import Seq2Seq
from nmt.text.tokenizer import EOS

# The largest random batch, and the steps that are done on each.
SENTENCES, SOURCE_TOKENS, HYPOTHESES, STEPS = 6, 40, 4, 6


class ModuleAndGraph:
    """A module and the graph that was traced from it."""

    def __init__(self, module: EncoderGraph | StepGraph, path: Path) -> None:
        self.module = module
        self.graph = InferenceSession(path)
        # Of each output the largest |a - b| so far, as a share of |a| where that is above 1, but for log-probabilities;
        # NaN after a NaN.
        self.differences: dict[str, float] = {}

    def __call__(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Run both; return the outputs of the module."""
        outputs = dict(zip(self.module.outputs, self.module(*inputs.values()), strict=True))
        used = {tensor.name: inputs[tensor.name].numpy() for tensor in self.graph.get_inputs()}
        for name, output in zip(outputs, self.graph.run(list(outputs), used), strict=True):
            expected = outputs[name].double().numpy()
            size = 1.0 if name == "log_probs" else np.maximum(np.abs(expected), 1.0)
            difference = (np.abs(expected - output) / size).max(initial=0.0)
            self.differences[name] = float(np.maximum(self.differences.get(name, 0.0), difference))
        return outputs


@torch.inference_mode()
def largest_differences(model: Seq2Seq, encoder: Path, step: Path, batches: int) -> dict[str, float]:
    """Return the largest difference of each output of the graphs from the model's, over random batches; raise UserError
    if onnxruntime fails.
    """
    generator = np.random.default_rng(0)
    try:
        encoder_graph = ModuleAndGraph(EncoderGraph(model), encoder)
        step_graph = ModuleAndGraph(StepGraph(model), step)
        for _ in range(batches):
            run_random_batch(encoder_graph, step_graph, generator)
    except Exception as error:
        if not type(error).__module__.startswith("onnxruntime"):
            raise
        reason = one_line(error)
        raise UserError(f"this model cannot be exported: onnxruntime cannot run its graphs ({reason})") from error
    return encoder_graph.differences | step_graph.differences


def run_random_batch(encoder_graph: ModuleAndGraph, step_graph: ModuleAndGraph, generator: np.random.Generator) -> None:
    """Encode random sentences and extend random hypotheses by random tokens.

    Both get the model's states at each step: where states differ by rounding, later ones may differ by much more.
    """
    model = encoder_graph.module.model
    source_vocab, target_vocab = model.encoder.embedding.num_embeddings, model.decoder.embedding.num_embeddings
    sizes = generator.integers(0, SOURCE_TOKENS, generator.integers(1, SENTENCES, endpoint=True))
    source, _, lengths = pad([generator.integers(EOS + 1, source_vocab, size, dtype=np.int32) for size in sizes])
    encoded = encoder_graph({"source": source, "lengths": lengths})
    memory = {name: encoded.pop(name) for name in MEMORY}
    beam, width = int(generator.integers(1, HYPOTHESES, endpoint=True)), 1
    for position in range(STEPS):
        beams = torch.from_numpy(generator.integers(0, width, (len(sizes), beam)))
        states = {name: x[torch.arange(len(sizes))[:, None], beams] for name, x in encoded.items()}
        tokens = torch.from_numpy(generator.integers(EOS, target_vocab, beams.shape))
        outputs = step_graph({"tokens": tokens, "position": torch.tensor([position]), **memory, **states})
        encoded, width = {name: outputs[f"next_{name}"] for name in states}, beam


def signature(path: Path) -> dict[str, dict[str, str]]:
    """Return type and shape of each input and output of a graph; an axis that may have any size has a name."""
    graph = InferenceSession(path)
    sides = {"inputs": graph.get_inputs(), "outputs": graph.get_outputs()}
    return {
        side: {tensor.name: f"{tensor.type} [{', '.join(map(str, tensor.shape))}]" for tensor in tensors}
        for side, tensors in sides.items()
    }
