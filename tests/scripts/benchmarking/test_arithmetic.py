import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarking.arithmetic import Work, forward_flop, spared_flop, update_flop
from nmt.attention.scores import SCORES
from nmt.config.schema import AttentionConfig, ModelConfig
from nmt.data.batch import Batch, collate
from nmt.fast.accelerate import accelerate
from nmt.models.build import build_model
from nmt.models.seq2seq import Seq2Seq
from nmt.training.objective import token_loss

pytestmark = pytest.mark.filterwarnings("ignore:TF32 acceleration")  # said by torch when oneDNN is switched

VOCAB = 90
VARIANTS: list[dict[str, Any]] = [
    *(
        {"decoder": decoder, "cell": cell, "attention": AttentionConfig(score=score, size=10)}
        for decoder, cell, score in itertools.product(
            ("bahdanau", "luong", "conditional"), ("gru", "lstm"), ("additive", "general")
        )
    ),
    *({"attention": AttentionConfig(score=score, num_basis=11)} for score in SCORES),
    {"attention": AttentionConfig(score="additive", window="local_p", size=10)},
    {"attention": AttentionConfig(score="location", num_basis=11, num_heads=2)},
    {"attention": AttentionConfig(score="general", num_heads=2)},
    {"attention": AttentionConfig(score="scaled_dot", num_heads=2, projection="learned", size=10)},
    {"decoder": "luong", "input_feeding": False, "attention": AttentionConfig(score="general")},
    {"decoder": "bahdanau", "readout": "linear", "num_layers": 2, "cell": "lstm"},
    {"decoder": "luong", "num_layers": 3, "tied_embeddings": "all"},
    {"decoder": "fixed_context"},
    {"self_attention_heads": 2},
    {"attention": AttentionConfig(coverage="fertility")},
]


def model_of(variant: dict[str, Any]) -> tuple[Seq2Seq, ModelConfig]:
    """A small model, not accelerated."""
    config = ModelConfig(**{"embedding_size": 12, "hidden_size": 16, "dropout": 0.0, **variant})
    return build_model(config, VOCAB, VOCAB, joint=True), config


def batch_of(lengths: list[tuple[int, int]]) -> Batch:
    """Pairs of these many tokens, end marks in."""
    source, target = ([np.full(length - 1, 5, np.int32) for length in side] for side in zip(*lengths, strict=True))
    return collate(source, target, np.arange(len(lengths)))


def counted(model: Seq2Seq, batch: Batch, *, backward: bool) -> int:
    # Without oneDNN's LSTM and the fused self-attention, operators that the counter does not know.
    plain = torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH)
    with plain[0], plain[1], FlopCounterMode(display=False) as counter:
        loss = token_loss(model, model(batch), batch, label_smoothing=0.1).objective
        if backward:
            loss.backward()
    return counter.get_total_flops()


def name_of(variant: dict[str, Any]) -> str:
    values = (
        v
        for value in variant.values()
        for v in (vars(value).values() if isinstance(value, AttentionConfig) else [value])
    )
    return "-".join(map(str, values))


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_forward_pass_is_what_torch_counts(variant: dict[str, Any]) -> None:
    model, config = model_of(variant)
    batch = batch_of([(9, 7)] * 3)
    assert forward_flop(model, config, Work.of([batch])) == counted(model, batch, backward=False)


@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_update_is_what_torch_counts(variant: dict[str, Any]) -> None:
    model, config = model_of(variant)
    batch = batch_of([(30, 30)] * 2)
    # Torch leaves products out whose factor is the zero state before the first step, or needs no gradient.
    assert update_flop(model, config, Work.of([batch])) == pytest.approx(counted(model, batch, backward=True), rel=0.05)


def test_padding_counts_for_nothing() -> None:
    model, config = model_of({"decoder": "luong"})
    uneven = Work.of([batch_of([(9, 2), (3, 8)])])
    apart = Work.of([batch_of([(9, 2)]), batch_of([(3, 8)])])
    assert forward_flop(model, config, uneven) == forward_flop(model, config, apart)
    assert forward_flop(model, config, uneven) < counted(model, batch_of([(9, 2), (3, 8)]), backward=False)


def test_work_is_counted_in_tokens_with_end_marks() -> None:
    work = Work.of([batch_of([(9, 2), (3, 8)]), batch_of([(4, 4)])])
    assert work == Work(
        sentences=3,
        source_tokens=16,
        target_tokens=14,
        target_positions=20,
        pairs=18 + 24 + 16,
        source_pairs=81 + 9 + 16,
        source_repeats=(9 + 3 - 2) + (4 - 2),  # one word and the end mark are distinct
        target_repeats=(2 + 8 - 2) + (4 - 2),
    )


def test_two_passes_are_a_batch_with_all_pairs_twice() -> None:
    batches = [batch_of([(9, 2), (3, 8)]), batch_of([(4, 4)])]
    assert Work.of(batches).twice() == Work.of(batch.twice() for batch in batches)


def test_a_worked_example() -> None:
    """Luong's decoder with a GRU and general attention, by hand: embeddings 12, states 16, 5 + 3 tokens."""
    model, config = model_of({"decoder": "luong", "attention": AttentionConfig(score="general")})
    encoder = 2 * (12 + 8) * 3 * 8 * 5
    keys = 16 * 16 * 5
    bridge = 8 * 16
    cell = (12 + 16 + 16) * 3 * 16 * 3  # of the embedding, of what is fed back, of the state
    attentional = (16 + 16) * 16 * 3
    attention = (16 + 16) * 5 * 3
    output = 16 * VOCAB * 3
    by_hand = 2 * (encoder + keys + bridge + cell + attentional + attention + output)
    assert forward_flop(model, config, Work.of([batch_of([(5, 3)])])) == by_hand


def test_what_equal_words_spare() -> None:
    """By hand: of 5 + 4 and 3 + 7 tokens, the word 5 and a mark, 2 are distinct."""
    variant = {"decoder": "conditional", "cell": "lstm", "readout": "linear"}
    model, _ = model_of(variant)
    work = Work.of([batch_of([(5, 3), (4, 7)])])
    assert spared_flop(model, work) == 0  # as it is written, each word is multiplied
    source = 12 * (2 * 4 * 8) * (5 + 4 - 2)
    target = 12 * (4 * 16 + 12) * (3 + 7 - 2)  # gates of the proposal; features
    assert spared_flop(accelerate(model), work) == 2 * 3 * (source + target)
    assert spared_flop(model.to("meta"), work) == 0  # any device but a CPU, where words are not compared
    assert spared_flop(accelerate(model_of({**variant, "embedding_dropout": 0.1})[0]), work) == 0
