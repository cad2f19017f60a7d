"""The best continuations of all hypotheses of a sentence, without sorting whole vocabularies."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

LANES = 64  # a multiple of every vector register's width: rows of 126 numbers took five times as long as rows of 128


def best_continuations(
    before: Float[Tensor, "batch beam"], log_probs: Float[Tensor, "batch beam vocab"], k: int
) -> tuple[Float[Tensor, "batch k"], Int[Tensor, "batch k"], Int[Tensor, "batch k"]]:
    """Return the k greatest of before[b, i] + log_probs[b, i, v], for each sentence b.

    The vocabulary is dealt out to n groups, token v to group v mod n. The k best continuations are in the k groups
    with the greatest maxima. So first the maxima are sorted, then the tokens of k groups: for each hypothesis about
    sqrt(2 vocab) numbers each time instead of vocab. Sums have the wider type of the two.

    Args:
        before: log-probability of each hypothesis.
        log_probs: log-probability of each token after it, for a vocabulary of at least two.
        k: how many, at most 2 per hypothesis.

    Returns:
        their sums, best first, the hypotheses i, and the tokens v.
    """
    vocab = log_probs.shape[2]
    num_groups = groups_for(vocab)
    maxima = before[:, :, None] + group_maxima(log_probs, num_groups)
    groups = maxima.flatten(1).topk(k).indices
    beams, first = groups // num_groups, groups % num_groups
    tokens = first[:, :, None] + torch.arange(0, vocab, num_groups, device=first.device)  # [batch, k, group]
    is_token = tokens < vocab
    tokens = tokens.clamp(max=vocab - 1)
    indices = beams[:, :, None] * vocab + tokens
    values = log_probs.flatten(1).gather(1, indices.flatten(1)).view(tokens.shape)
    sums = torch.where(is_token, before.gather(1, beams)[:, :, None] + values, float("-inf"))
    best, order = sums.flatten(1).topk(k)
    return best, beams.gather(1, order // tokens.shape[2]), tokens.flatten(1).gather(1, order)


def groups_for(vocab: int) -> int:
    """Return a number of groups near sqrt(2 vocab); if large, a multiple of `LANES`."""
    number = vocab // max(1, math.isqrt(vocab // 2))
    return number if number < LANES else -(-number // LANES) * LANES


def group_maxima(
    log_probs: Float[Tensor, "batch beam vocab"], num_groups: int
) -> Float[Tensor, "batch beam num_groups"]:
    """Return the maximum over the tokens of each group; the first groups may have one token more than the others."""
    size = log_probs.shape[2] // num_groups * num_groups
    maxima = log_probs[:, :, :size].unflatten(2, (-1, num_groups)).amax(dim=2)
    rest = log_probs[:, :, size:]
    larger = maxima[:, :, : rest.shape[2]]
    torch.maximum(larger, rest, out=larger)
    return maxima
