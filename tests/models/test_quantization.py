"""8-bit integers: which maps they replace, and how near the answers stay."""

import pytest
import torch
from torch import nn

from nmt.errors import UserError
from nmt.models.quantization import quantize
from nmt.models.seq2seq import Seq2Seq
from tests.models.small import random_batch, small_model

LENGTHS = [(5, 4), (1, 7), (9, 1)]


def log_probs(model: Seq2Seq) -> torch.Tensor:
    batch = random_batch(LENGTHS)
    with torch.inference_mode():
        return model.project(model.eval()(batch).features).log_softmax(dim=-1)[batch.target_mask]


def is_map(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) and min(module.weight.shape) > 1


def test_predictions_stay_near(model: Seq2Seq) -> None:
    model = model.float()
    expected = log_probs(model)
    found = log_probs(quantize(model))
    divergence = (expected.exp() * (expected - found)).sum(dim=1)
    assert 0 < divergence.abs().max() < 0.02
    # The random model is far from uniform, or being near would mean nothing.
    assert (expected + torch.log(torch.tensor(11.0))).abs().max() > 0.5


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "conditional"])
def test_all_maps_but_those_of_the_encoder_are_replaced(decoder: str) -> None:
    model = small_model(decoder=decoder, tied_embeddings="target", self_attention_heads=2).float()
    embedding = model.decoder.embedding.weight.detach().clone()
    before = sum(map(is_map, model.encoder.modules()))
    assert sum(map(is_map, model.decoder.modules())) > 3
    quantize(model)
    assert not any(map(is_map, model.decoder.modules()))
    assert not is_map(model.output)
    assert sum(map(is_map, model.encoder.modules())) == before > 0
    assert torch.equal(model.decoder.embedding.weight, embedding)
    assert model.output.weight().dtype == torch.qint8


def test_rows_have_scales_of_their_own() -> None:
    """One output word's large weights cost the others no precision."""
    model = small_model(decoder="bahdanau").float()
    with torch.no_grad():
        model.output.weight[0] *= 1e4
        features = torch.randn(50, model.output.in_features)
        expected = model.output(features)[:, 1:]
        found = quantize(model).project(features)[:, 1:]
    assert (found - expected).abs().max() < 0.05 * expected.abs().max()


def test_another_device_is_refused() -> None:
    with pytest.raises(UserError, match="int8 translates on a CPU, not on meta"):
        quantize(small_model().to("meta"))
