"""The objective against its formula, token by token."""

import torch

from nmt.training.objective import token_loss
from tests.models.small import VOCAB, random_batch, small_model


def test_it_is_the_formula():
    """-sum_i [(1 - eps) log p(y_i) + eps / V sum_v log p(v)], and -log p(y_i) of each token, on real tokens only."""
    model, batch = small_model(), random_batch([(5, 4), (1, 7), (9, 1)])
    decoded = model(batch)
    loss = token_loss(model, decoded, batch, label_smoothing=0.1)
    log_probs = model.project(decoded.features).log_softmax(dim=-1)
    objective, each = log_probs.new_zeros(()), []
    for row in range(len(batch)):
        for position in range(int(batch.target_mask[row].sum())):
            gold = log_probs[row, position, batch.target_out[row, position]]
            each.append(-gold)
            objective -= 0.9 * gold + 0.1 / VOCAB * log_probs[row, position].sum()
    torch.testing.assert_close(loss.objective, objective)
    torch.testing.assert_close(loss.cross_entropies, torch.stack(each))
    assert not loss.cross_entropies.requires_grad
