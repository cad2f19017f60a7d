"""The best continuations of all hypotheses of a sentence."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

LANES = 64  # numbers: several of the widest vector registers; rows of 126 took five times as long as rows of 128


class Continuations(NamedTuple):
    """Continuations of each sentence, best first: hypothesis `beams[r]`, followed by `tokens[r]`."""

    log_probs: Float[Tensor, "batch k"]
    beams: Int[Tensor, "batch k"]
    tokens: Int[Tensor, "batch k"]


def best_continuations(
    before: Float[Tensor, "batch beam"], log_probs: Float[Tensor, "batch beam vocab"], k: int
) -> Continuations:
    """Return the k greatest of before[b, i] + log_probs[b, i, v], for each sentence b.

    The vocabulary is dealt out to n groups, token v to group v mod n. The k best are in the k groups whose own best
    are greatest, so only maxima, and then the tokens of k groups, are sorted: about sqrt(2 vocab) numbers a
    hypothesis instead of vocab. Sums are formed for these alone, in the wider type of the two.

    Args:
        before: log-probability of each hypothesis.
        log_probs: log-probability of each token after it.
        k: how many, at most 2 a hypothesis; there must be at least two tokens.
    """
    vocab = log_probs.shape[2]
    num_groups = groups_for(vocab)
    maxima = before[:, :, None] + group_maxima(log_probs, num_groups)
    groups = maxima.flatten(1).topk(k).indices
    beams, first = groups // num_groups, groups % num_groups
    tokens = first[:, :, None] + torch.arange(0, vocab, num_groups, device=first.device)
    is_token = tokens < vocab
    tokens = tokens.clamp(max=vocab - 1)
    places = beams[:, :, None] * vocab + tokens
    found = log_probs.flatten(1).gather(1, places.flatten(1)).view(tokens.shape)
    sums = torch.where(is_token, before.gather(1, beams)[:, :, None] + found, float("-inf"))
    best, order = sums.flatten(1).topk(k)
    return Continuations(best, beams.gather(1, order // tokens.shape[2]), tokens.flatten(1).gather(1, order))


def groups_for(vocab: int) -> int:
    """Return a number of groups near sqrt(2 vocab); if large, a multiple of what a CPU compares at a time."""
    number = vocab // max(1, math.isqrt(vocab // 2))
    return number if number < LANES else -(-number // LANES) * LANES


def group_maxima(
    log_probs: Float[Tensor, "batch beam vocab"], num_groups: int
) -> Float[Tensor, "batch beam num_groups"]:
    """Return the maximum over the tokens of each group, the last of which some groups lack."""
    whole = log_probs.shape[2] // num_groups * num_groups
    maxima = log_probs[:, :, :whole].unflatten(2, (-1, num_groups)).amax(dim=2)
    rest = log_probs[:, :, whole:]
    lucky = maxima[:, :, : rest.shape[2]]
    torch.maximum(lucky, rest, out=lucky)
    return maxima
