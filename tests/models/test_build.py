"""Building: what is shared, what is refused, how weights start."""

from typing import Any

import pytest
import torch

from nmt.config.schema import AttentionConfig, ModelConfig
from nmt.errors import UserError
from nmt.models.build import build_model, check_model
from nmt.models.decoder import DECODERS
from nmt.models.summary import count_parameters, summarize
from tests.models.small import VOCAB

SIZES: dict[str, Any] = {"embedding_size": 6, "hidden_size": 8}


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "conditional"])
@pytest.mark.parametrize(("tied", "tables"), [("none", 3), ("target", 2), ("all", 1)])
def test_tied_embeddings_share_their_weights(decoder, tied, tables):
    model = build_model(ModelConfig(decoder=decoder, tied_embeddings=tied, **SIZES), VOCAB, VOCAB, joint=True)
    shared = (model.encoder.embedding.weight, model.decoder.embedding.weight, model.output.weight)
    assert len({id(weight) for weight in shared}) == tables


def test_parameters_are_counted_once():
    """By hand: vocabulary 11, embeddings 6, hidden 8 (encoder 2 x 4), additive attention of 8."""
    model = build_model(ModelConfig(**SIZES), VOCAB, VOCAB, joint=True)
    encoder = 2 * (3 * 4 * 6 + 3 * 4 * 4 + 2 * 3 * 4)
    cell = (24 * 6 + 24) + 24 * 8 + 8 + 24 * 8  # input, recurrent, candidate bias, context
    attention = 8 * 8 + (8 * 8 + 8) + 8
    readout = (12 * 8 + 12) + 12 * 8 + 12 * 6
    bridge = 8 * 4 + 8
    assert count_parameters(model) == 2 * 11 * 6 + encoder + cell + attention + readout + bridge + (11 * 6 + 11)
    assert summarize(model).splitlines()[-1].split() == ["parameters", f"{count_parameters(model):,}"]
    listed = [int(line.split("  (")[0].split()[-1].replace(",", "")) for line in summarize(model).splitlines()[:-1]]
    assert sum(listed) == count_parameters(model)


def test_recurrent_matrices_start_orthogonal_and_forget_gates_open():
    model = build_model(ModelConfig(cell="lstm", **SIZES), VOCAB, VOCAB, joint=True)
    cell = model.decoder.stack.first
    for block in cell.recurrent.weight.split(8):
        torch.testing.assert_close(block @ block.T, torch.eye(8), rtol=0, atol=1e-5)
    torch.testing.assert_close(cell.inputs.bias, torch.tensor([0.0] * 8 + [1.0] * 8 + [0.0] * 16))
    assert model.encoder.rnn.bias_ih_l0.chunk(4)[1].eq(1).all()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ModelConfig(hidden_size=7), "model.hidden_size=7 must be even"),
        (
            ModelConfig(attention=AttentionConfig(score="genral")),
            "unknown model.attention.score 'genral'.*did you mean 'general'",
        ),
        (
            ModelConfig(decoder="fixed_context", attention=AttentionConfig(window="local_m")),
            "model=fixed_context has no attention, so model.attention.window=local_m means nothing",
        ),
        (ModelConfig(decoder="gnmt"), "set model.num_layers=2 or more"),
        (ModelConfig(self_attention_heads=3), "model.self_attention_heads=3 does not divide model.hidden_size=512"),
        (
            ModelConfig(attention=AttentionConfig(score="dot", coverage="fertility")),
            "model.attention.coverage=fertility is an input of additive",
        ),
        (ModelConfig(tied_embeddings="all"), "set tokenizer.joint=true, or tie `target`"),
    ],
)
def test_settings_that_cannot_work_are_explained(config, message):
    with pytest.raises(UserError, match=message):
        check_model(config, joint=False)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            ModelConfig(decoder="luong", readout="maxout"),
            "model=luong has a readout of its own, .* so model.readout=maxout means nothing: set model.readout=linear",
        ),
        *(
            (
                ModelConfig(decoder=decoder, input_feeding=False),
                f"model.input_feeding=false means nothing to model={decoder}: leave it out, or choose model=luong",
            )
            for decoder in ("bahdanau", "conditional", "gnmt", "fixed_context")
        ),
    ],
)
def test_settings_that_a_decoder_would_ignore_are_refused(config, message):
    with pytest.raises(UserError, match=message):
        DECODERS[config.decoder].check_ignored_settings(config)


def test_settings_that_a_decoder_uses_are_not_refused():
    for decoder in ("bahdanau", "conditional", "gnmt", "fixed_context"):
        for readout in ("linear", "maxout"):
            DECODERS[decoder].check_ignored_settings(ModelConfig(decoder=decoder, readout=readout))
    for feeding in (True, False):
        DECODERS["luong"].check_ignored_settings(ModelConfig(decoder="luong", readout="linear", input_feeding=feeding))


@pytest.mark.parametrize(("decoder", "is_used"), [("luong", False), ("bahdanau", True), ("gnmt", True)])
def test_the_readout_is_that_of_the_configuration_but_for_luong(decoder, is_used):
    kinds = {
        type(
            build_model(
                ModelConfig(decoder=decoder, readout=readout, num_layers=2, **SIZES), VOCAB, VOCAB, joint=True
            ).decoder.readout
        )
        for readout in ("maxout", "linear")
    }
    assert len(kinds) == 1 + is_used
