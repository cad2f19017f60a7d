"""Small models for every decoder, cell and score."""

import itertools
from typing import Any

import numpy as np
import torch

from nmt.attention.scores import SCORES
from nmt.config.schema import AttentionConfig, ModelConfig
from nmt.data.batch import Batch, collate
from nmt.models.build import build_model
from nmt.models.seq2seq import Seq2Seq

VOCAB = 11


def small_model(**changes) -> Seq2Seq:
    torch.manual_seed(3)
    settings = {"embedding_size": 6, "hidden_size": 8, "dropout": 0.0, **changes}
    model = build_model(ModelConfig(**settings), VOCAB, VOCAB, joint=True).double()
    for parameter in model.parameters():  # initial biases are zero, which would hide mistakes
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def random_batch(lengths: list[tuple[int, int]], seed: int = 0) -> Batch:
    generator = np.random.default_rng(seed)
    sources = [generator.integers(4, VOCAB, source) for source, _ in lengths]
    targets = [generator.integers(4, VOCAB, target) for _, target in lengths]
    return collate(sources, targets, np.arange(len(lengths)))


def variants() -> list[dict]:
    """Every decoder x cell x score, and each further option once."""
    names = itertools.product(("bahdanau", "luong", "conditional"), ("gru", "lstm"), SCORES)
    every = [{"decoder": d, "cell": c, "attention": AttentionConfig(score=s)} for d, c, s in names]
    options: list[dict[str, Any]] = [
        {"normalizer": "sparsemax"},
        {"normalizer": "entmax15", "temperature": 0.5},
        {"window": "local_m", "radius": 1},
        {"window": "local_p", "radius": 2},
        {"score": "location", "basis": "radial"},
        {"num_heads": 2, "projection": "learned"},
        {"coverage": "accumulated"},
        {"coverage": "fertility"},
    ]
    return [
        *every,
        *({"attention": AttentionConfig(**option)} for option in options),
        {"decoder": "luong", "input_feeding": False},
        {"decoder": "luong", "input_feeding": False, "attention": AttentionConfig(score="general")},
        *({"decoder": "gnmt", "cell": cell, "num_layers": layers} for cell in ("gru", "lstm") for layers in (2, 4)),
        {"decoder": "gnmt", "num_layers": 2, "attention": AttentionConfig(score="dot", window="local_m", radius=1)},
        {"decoder": "bahdanau", "readout": "linear"},
        *({"decoder": "fixed_context", "cell": cell} for cell in ("gru", "lstm")),
        {"decoder": "conditional", "self_attention_heads": 2},
        {"decoder": "conditional", "tied_embeddings": "target"},
        {"decoder": "luong", "tied_embeddings": "all"},
        *(
            {"decoder": d, "cell": c, "num_layers": 2}
            for d in ("bahdanau", "luong", "conditional")
            for c in ("gru", "lstm")
        ),
    ]


def name_of(variant: dict) -> str:
    return "-".join(name_of_attention(v) if isinstance(v, AttentionConfig) else str(v) for v in variant.values())


def name_of_attention(config: AttentionConfig) -> str:
    changed = {n: str(v) for n, v in vars(config).items() if v != getattr(AttentionConfig(), n)}
    return "-".join(changed.values()) or config.score
