"""Exported graphs as a model that can be searched, and how far its searches are from those of another."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import torch
from jaxtyping import Bool, Int
from onnxruntime import InferenceSession, SessionOptions
from torch import Tensor

from nmt.data.batch import pad
from nmt.models.seq2seq import Seq2Seq
from nmt.search.hypothesis import StepOutput
from nmt.text.tokenizer import EOS

# The largest random batch.
SENTENCES, SOURCE_TOKENS, HYPOTHESES, STEPS = 6, 40, 4, 8


class ExportedState(NamedTuple):
    """The tensors that a step reads, by name, and the number of steps done."""

    memory: dict[str, Tensor]
    states: dict[str, Tensor]
    position: int

    def select(self, beams: Int[Tensor, "batch k"]) -> "ExportedState":
        """Return the state of `beams`, k hypotheses of each sentence."""
        rows = torch.arange(len(beams))[:, None]
        return self._replace(states={name: value[rows, beams] for name, value in self.states.items()})

    def keep(self, sentences: Int[Tensor, " kept"]) -> "ExportedState":
        """Return the state of some of the sentences."""
        memory, states = ({name: x[sentences] for name, x in part.items()} for part in (self.memory, self.states))
        return ExportedState(memory, states, self.position)


@final
class Exported:
    """Encoder and step by onnxruntime on a CPU; a `StepModel`, as the model that they were exported from."""

    def __init__(self, encoder: Path, step: Path, threads: int = 1) -> None:
        options = SessionOptions()
        options.intra_op_num_threads = threads
        self.encoder, self.decoder = (InferenceSession(path, options) for path in (encoder, step))

    def start(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        source_lengths: Int[Tensor, " batch"],
    ) -> ExportedState:
        """Encode sentences, one hypothesis each."""
        found = run(self.encoder, {"source": source, "lengths": source_lengths})
        next_states = {each.name for each in self.decoder.get_outputs()}
        states = {name: value for name, value in found.items() if f"next_{name}" in next_states}
        return ExportedState({name: found[name] for name in found.keys() - states}, states, 0)

    def step(self, tokens: Int[Tensor, "batch beam"], state: ExportedState) -> StepOutput[ExportedState]:
        """Extend every hypothesis by a token."""
        read = {"tokens": tokens, "position": torch.tensor([state.position])}
        found = run(self.decoder, state.memory | state.states | read)
        states = {name: found[f"next_{name}"] for name in state.states}
        return StepOutput(
            found["log_probs"], found["weights"], state._replace(states=states, position=state.position + 1)
        )


def run(graph: InferenceSession, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Run a graph with those of the values that are its inputs."""
    found = graph.run(None, {each.name: values[each.name].numpy() for each in graph.get_inputs()})
    return {each.name: torch.from_numpy(value) for each, value in zip(graph.get_outputs(), found, strict=True)}


@torch.inference_mode()
def largest_difference(model: Seq2Seq, exported: Exported, batches: int, seed: int = 0) -> float:
    """Return the largest |a - b| of log-probabilities and of attention weights, over random batches and steps.

    Each batch has another number of sentences and hypotheses; after each step hypotheses are chosen at random, as a
    beam search chooses them.
    """
    generator = np.random.default_rng(seed)
    found = [difference for _ in range(batches) for difference in differences(model, exported, generator)]
    return float(np.max(found))


def differences(model: Seq2Seq, exported: Exported, generator: np.random.Generator) -> Iterator[float]:
    """Yield the largest difference of each step on a random batch."""
    sizes = generator.integers(0, SOURCE_TOKENS, generator.integers(1, SENTENCES, endpoint=True))
    words = model.encoder.embedding.num_embeddings, model.decoder.embedding.num_embeddings
    batch = pad([generator.integers(EOS + 1, words[0], size, dtype=np.int32) for size in sizes])
    expected, found = model.start(*batch), exported.start(*batch)
    beams = torch.zeros(len(sizes), int(generator.integers(1, HYPOTHESES, endpoint=True)), dtype=torch.long)
    for _ in range(STEPS):
        tokens = torch.from_numpy(generator.integers(EOS, words[1], beams.shape))
        ours, theirs = model.step(tokens, expected.select(beams)), exported.step(tokens, found.select(beams))
        pairs = (ours.log_probs, theirs.log_probs), (ours.weights, theirs.weights)
        yield float(np.max([(ours - theirs).abs().max() for ours, theirs in pairs]))  # of which NaN is the largest
        expected, found = ours.state, theirs.state
        beams = torch.from_numpy(generator.integers(0, beams.shape[1], beams.shape))
