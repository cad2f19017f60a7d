"""A new encoder and a new decoder take one file and one line each: they train, search and are summed up as they are."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt.attention.attention import Memory
from nmt.config.schema import ModelConfig
from nmt.errors import UserError
from nmt.evaluation.saliency import gradient_times_input
from nmt.fast.accelerate import accelerate, decelerate
from nmt.fast.objective import token_loss as chunked_loss
from nmt.models.build import build_model, check_model
from nmt.models.decoder import DECODERS, Decoder, DecoderState, Emission
from nmt.models.encoder import ENCODERS, Encoder, EncoderOutput, mask_of
from nmt.models.layers import Embedding
from nmt.models.seq2seq import Seq2Seq
from nmt.models.summary import summarize
from nmt.search.beam import beam_search
from nmt.training.objective import token_loss
from tests.models.small import VOCAB, random_batch

LENGTHS = [(5, 4), (1, 7), (9, 1)]


class Transformer(Encoder):
    """Two layers of self-attention; every decoder layer starts from the mean of the states."""

    def __init__(self, config: ModelConfig, embedding: Embedding) -> None:
        super().__init__(config, embedding)
        self.state_size = self.final_size = embedding.embedding_dim
        self.num_layers = config.num_layers
        layer = nn.TransformerEncoderLayer(self.state_size, 2, dim_feedforward=16, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.position = nn.Parameter(torch.zeros(32, self.state_size))

    @staticmethod
    def state_size_of(config: ModelConfig) -> int:
        return config.embedding_size

    def forward(self, source: Tensor, source_lengths: Tensor) -> EncoderOutput:
        mask = mask_of(source_lengths, source.shape[1]).to(source.device)
        embedded = self.embedding(source) + self.position[: source.shape[1]]
        states = self.layers(embedded, src_key_padding_mask=~mask)
        mean = (states * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        return EncoderOutput(states, mean[:, None].expand(-1, self.num_layers, -1), mean)


class Unfed(Decoder):
    """Attends after its update; only the readout sees the context."""

    def advance(self, gates: Tensor, memory: Memory, state: DecoderState) -> tuple[DecoderState, Emission]:
        layers = self.stack(gates, state.layers)
        attended = self.attend(self.stack.top(layers), memory, state)
        return self.emit(self.stack.top(layers), layers, attended, state)


@pytest.fixture(params=[("transformer", "bahdanau"), ("recurrent", "unfed"), ("transformer", "unfed")], ids="-".join)
def names(request: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    monkeypatch.setitem(ENCODERS, "transformer", Transformer)
    monkeypatch.setitem(DECODERS, "unfed", Unfed)
    return request.param


def build(names: tuple[str, str], **changes: Any) -> Seq2Seq:
    torch.manual_seed(0)
    settings = {"embedding_size": 8, "hidden_size": 12, "dropout": 0.0, "readout": "linear", **changes}
    return build_model(ModelConfig(encoder=names[0], decoder=names[1], **settings), VOCAB, VOCAB, joint=True)


@pytest.mark.parametrize("num_layers", [1, 2])
def test_they_learn(names: tuple[str, str], num_layers: int) -> None:
    model, batch = build(names, num_layers=num_layers), random_batch(LENGTHS)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = token_loss(model, model(batch), batch, label_smoothing=0.0).objective
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_they_are_searched_explained_and_summed_up(names: tuple[str, str]) -> None:
    model, batch = build(names).eval(), random_batch(LENGTHS)
    limits = torch.full((len(batch),), 5)
    found = beam_search(model, batch.source, batch.source_mask, batch.source_lengths, beam_size=2, max_lengths=limits)
    assert len(found) == len(batch)
    assert gradient_times_input(model, batch).shape == (3, batch.target_in.shape[1], batch.source.shape[1])
    text = summarize(model)
    counts = [int(line.split("  (")[0].split()[-1].replace(",", "")) for line in text.splitlines()]
    assert sum(counts[:-1]) == counts[-1] == sum(p.numel() for p in model.parameters())


def test_the_fast_path_takes_what_it_knows_and_changes_nothing(names: tuple[str, str]) -> None:
    model, batch = build(names).double(), random_batch(LENGTHS)
    expected = token_loss(model, model(batch), batch, label_smoothing=0.1).objective
    accelerate(model)
    found = chunked_loss(model, model(batch), batch, label_smoothing=0.1)[0]
    torch.testing.assert_close(found, expected)
    assert "read_words" in vars(model.decoder)
    assert not any("read_words" in vars(module) for module in decelerate(model).modules())


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown model.decoder 'bahdanu'.*did you mean 'bahdanau'"):
        check_model(ModelConfig(decoder="bahdanu"))
    with pytest.raises(UserError, match=r"unknown model.encoder 'recurent'.*did you mean 'recurrent'"):
        check_model(ModelConfig(encoder="recurent"))
