"""The translation model: encoder, decoder and output layer, for training and for search."""

from typing import NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nmt.attention.attention import Memory
from nmt.attention.shapes import at_least_fp32
from nmt.data.batch import Batch
from nmt.models.decoder import Decoded, Decoder, DecoderState
from nmt.models.encoder import Encoder
from nmt.search.hypothesis import StepOutput


class SearchState(NamedTuple):
    """State of a search: the hypotheses' decoder states and what they attend to."""

    decoder: DecoderState
    memory: Memory

    def select(self, beams: Int[Tensor, "batch k"]) -> "SearchState":
        """Return the state of `beams`, k hypotheses of each sentence."""
        return SearchState(self.decoder.select(beams), self.memory)

    def keep(self, sentences: Int[Tensor, " kept"]) -> "SearchState":
        """Return the state of some of the sentences."""
        return SearchState(self.decoder.keep(sentences), self.memory.keep(sentences))


class Loss(NamedTuple):
    """The objective, summed over the real target tokens of a batch, and the cross-entropy of each; in nats.

    Only the objective has a gradient. Of two passes the cross-entropy is the mean; `divergence` is that between them.
    """

    objective: Float[Tensor, ""]
    cross_entropies: Float[Tensor, " tokens"]
    divergence: Float[Tensor, ""] | None = None


@final
class Seq2Seq(nn.Module):
    """p(y | x) = prod_i p(y_i | y_<i, x), by attention over the encoder's states."""

    def __init__(self, encoder: Encoder, decoder: Decoder, output: nn.Linear) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.output = output

    def forward(self, batch: Batch) -> Decoded:
        """Return features and attention weights at every target position of a batch."""
        state = self.start(batch.source, batch.source_mask, batch.source_lengths)
        return self.decoder(batch.target_in, state.memory, state.decoder)

    def attend(self, batch: Batch) -> Float[Tensor, "batch target source"]:
        """Return the attention to given targets (forced decoding)."""
        return self(batch).weights

    def log_probs(self, batch: Batch) -> Float[Tensor, "batch target"]:
        """Return log p(y_i | y_<i, x) of given targets, 0 on padding."""
        decoded = self(batch)
        rows = [  # a sentence at a time: with all of them logits would take a gigabyte
            self.predict(features).gather(1, tokens[:, None])[:, 0]
            for features, tokens in zip(decoded.features, batch.target_out, strict=True)
        ]
        return torch.stack(rows) * batch.target_mask

    def project(self, features: Float[Tensor, "*batch feature"]) -> Float[Tensor, "*batch vocab"]:
        """Score the vocabulary: logits of the next token."""
        return self.output(features)

    def predict(self, features: Float[Tensor, "*batch feature"]) -> Float[Tensor, "*batch vocab"]:
        """Return log p of each token of the vocabulary, in nats; in at least fp32, as 16 bits do not sum to 1."""
        return at_least_fp32(self.project(features)).log_softmax(dim=-1)

    def start(
        self,
        source: Int[Tensor, "batch source"],
        source_mask: Bool[Tensor, "batch source"],
        source_lengths: Int[Tensor, " batch"],
    ) -> SearchState:
        """Encode sentences, one hypothesis each; `source_lengths` is on the CPU."""
        encoded = self.encoder(source, source_lengths)
        memory = self.decoder.project_memory(encoded, source_mask)
        return SearchState(self.decoder.start(encoded.final), memory)

    def step(self, tokens: Int[Tensor, "batch beam"], state: SearchState) -> StepOutput[SearchState]:
        """Extend every hypothesis by a token: log-probabilities of the next, and the attention that made them."""
        decoded, decoder = self.decoder.step(tokens, state.memory, state.decoder)
        log_probs = self.predict(decoded.features)
        return StepOutput(log_probs, decoded.weights, SearchState(decoder, state.memory))
