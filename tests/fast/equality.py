"""The fast path against the readable one."""

from functools import partial

import torch

from nmt.data.batch import Batch
from nmt.fast.accelerate import accelerate, restore
from nmt.fast.objective import token_loss as chunked_loss
from nmt.models.seq2seq import Seq2Seq
from nmt.training.objective import token_loss


def run(model: Seq2Seq, batch: Batch, *, fast: bool) -> dict[str, torch.Tensor]:
    """Return loss, weights and every gradient, those through contexts and attention weights included."""
    (accelerate if fast else restore)(model)
    model.zero_grad()
    decoded = model(batch)
    real = decoded.weights[batch.target_mask]
    objective = chunked_loss if fast else token_loss
    loss = objective(model, decoded, batch, label_smoothing=0.1)[0] + (real**2).sum()
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss.detach(), "weights": real.detach(), **gradients}


def assert_same(model: Seq2Seq, batch: Batch) -> None:
    expected, found = run(model, batch, fast=False), run(model, batch, fast=True)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-10, msg=partial("{}: {}".format, name))
