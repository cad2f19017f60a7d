"""A search as configured: greedy or with a beam, or samples in its place."""

import dataclasses
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from nmt.config.schema import SamplingConfig, SearchConfig
from nmt.search.beam import beam_search
from nmt.search.hypothesis import UNK, Hypothesis, StepModel
from nmt.search.sampling import sample

GREEDY = SamplingConfig(temperature=0.0)  # at no temperature nothing is drawn


def search_batch(
    model: StepModel[Any],
    source: Int[Tensor, "batch source"],
    source_mask: Bool[Tensor, "batch source"],
    source_lengths: Int[Tensor, " batch"],
    config: SearchConfig,
    *,
    n: int,
    sampling: SamplingConfig | None,
    with_unk: bool,
) -> list[list[Hypothesis]]:
    """Return the n best hypotheses of each sentence, or n samples; with `with_unk` they may have unknown words."""
    max_lengths = torch.from_numpy(longest_targets(source_lengths.numpy(), config)).to(source.device)
    settings: dict[str, Any] = {"length_penalty": config.length_penalty, "unk": None if with_unk else UNK}
    inputs = model, source, source_mask, source_lengths
    if sampling is None and n == 1 and is_greedy(config):
        sampling = GREEDY
    if sampling is not None:
        settings |= dataclasses.asdict(sampling)
        return sample(*inputs, num_samples=n, max_lengths=max_lengths, **settings)
    return beam_search(
        *inputs,
        beam_size=max(config.beam_size, n),
        n_best=n,
        max_lengths=max_lengths,
        patience=config.patience,
        coverage_penalty=config.coverage_penalty,
        **settings,
    )


def is_greedy(config: SearchConfig) -> bool:
    """Return whether a search for one translation takes the most probable token at every step."""
    return config.beam_size == 1 and config.patience <= 1 and config.coverage_penalty == 0


def longest_targets(lengths: Int[np.ndarray, " batch"], config: SearchConfig) -> Int[np.ndarray, " batch"]:
    """Return how many subwords a translation has at most, for sources of so many; end marks count."""
    return (lengths * config.max_length_ratio + config.max_length_offset).astype(np.int64)
