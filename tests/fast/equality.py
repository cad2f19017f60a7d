"""The fast path against the readable one."""

from functools import partial

import torch

from nmt.data.batch import Batch
from nmt.fast.accelerate import accelerate, decelerate
from nmt.fast.objective import token_loss as chunked_loss
from nmt.models.seq2seq import Seq2Seq
from nmt.training.objective import token_loss


def run(model: Seq2Seq, batch: Batch, *, fast: bool, consistency: float = 0.0) -> dict[str, torch.Tensor]:
    """Return loss, weights and every gradient, those through contexts and attention weights included.

    With `consistency` the batch goes through the model twice.
    """
    (accelerate if fast else decelerate)(model)
    model.zero_grad()
    torch.manual_seed(0)
    batch = batch.twice() if consistency else batch
    decoded = model(batch)
    real = decoded.weights[batch.target_mask]
    objective = chunked_loss if fast else token_loss
    loss = objective(model, decoded, batch, label_smoothing=0.1, consistency=consistency)[0] + (real**2).sum()
    loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss.detach(), "weights": real.detach(), **gradients}


def assert_same(model: Seq2Seq, batch: Batch, *, consistency: float = 0.0) -> None:
    expected, found = (run(model, batch, fast=fast, consistency=consistency) for fast in (False, True))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-10, msg=partial("{}: {}".format, name))
