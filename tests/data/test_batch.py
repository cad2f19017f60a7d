"""Batches against loops over tokens; plans against what they promise."""

import itertools
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data.batch import collate, cut_batches, pad, plan_batches, sort_by_length
from nmt.text.tokenizer import BOS, EOS, PAD

sentences = st.lists(st.integers(4, 99), max_size=6)
pairs = st.lists(st.tuples(sentences, sentences), min_size=1, max_size=6)
sizes = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=80)


def make(examples):
    sources, targets = zip(*examples, strict=True)
    return collate(arrays(sources), arrays(targets), np.arange(len(examples)))


def arrays(side):
    return [np.asarray(ids, np.int32) for ids in side]


def padded(rows):
    width = max(map(len, rows))
    return [row + [PAD] * (width - len(row)) for row in rows]


@given(pairs)
def test_collate_equals_a_loop_over_tokens(examples):
    batch = make(examples)
    assert batch.source.tolist() == padded([[*source, EOS] for source, _ in examples])
    assert batch.target_in.tolist() == padded([[BOS, *target] for _, target in examples])
    assert batch.target_out.tolist() == padded([[*target, EOS] for _, target in examples])
    assert batch.source_lengths.tolist() == [len(source) + 1 for source, _ in examples]
    assert batch.rows.tolist() == list(range(len(examples)))
    assert len(batch) == len(examples)


@given(pairs)
def test_masks_and_counts_tell_real_tokens(examples):
    batch = make(examples)
    assert torch.equal(batch.source_mask, batch.source != PAD)
    assert torch.equal(batch.target_mask, batch.target_out != PAD)
    assert torch.equal(batch.target_mask, batch.target_in != PAD)
    assert type(batch.num_target_tokens) is int
    assert batch.num_target_tokens == batch.target_mask.sum()
    assert type(batch.num_source_tokens) is int
    assert batch.num_source_tokens == batch.source_mask.sum()


def test_tensors_are_as_embeddings_and_packing_want_them():
    batch = make([([5, 6], [7])])
    assert {batch.source.dtype, batch.target_in.dtype, batch.target_out.dtype, batch.source_lengths.dtype} == {
        torch.int64
    }
    assert {batch.source_mask.dtype, batch.target_mask.dtype} == {torch.bool}


def test_to_moves_everything_but_the_source_lengths():
    batch = make([([5, 6], [7])])
    moved = batch.to("meta", non_blocking=True)
    tensors = {name: value for name, value in vars(moved).items() if isinstance(value, torch.Tensor)}
    assert {name for name, value in tensors.items() if value.device.type == "cpu"} == {"source_lengths"}
    assert moved.num_target_tokens == 2
    assert batch.source.device.type == "cpu"


@given(pairs)
def test_twice_is_the_batch_of_all_pairs_and_all_again(examples):
    found, expected = make(examples).twice(), make([*examples, *examples])
    for name, value in vars(expected).items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(getattr(found, name), value), name
    assert (found.num_source_tokens, found.num_target_tokens) == (
        expected.num_source_tokens,
        expected.num_target_tokens,
    )
    assert found.rows.tolist() == 2 * list(range(len(examples)))


@given(pairs, st.randoms(use_true_random=False))
def test_attention_to_be_taught_lies_at_its_pieces_and_nowhere_else(examples, random):
    attention = [[[random.random() for _ in source] for _ in target] for source, target in examples]
    matrices = [
        np.array(rows, np.float32).reshape(len(target), len(source))
        for rows, (source, target) in zip(attention, examples, strict=True)
    ]
    sources, targets = (arrays(side) for side in zip(*examples, strict=True))
    batch = collate(sources, targets, np.arange(len(examples)), matrices)
    assert batch.alignment.shape == (*batch.target_out.shape, batch.source.shape[1])
    for row, piece, other in itertools.product(*map(range, batch.alignment.shape)):
        source, target = examples[row]
        expected = attention[row][piece][other] if piece < len(target) and other < len(source) else 0.0
        assert batch.alignment[row, piece, other] == np.float32(expected)
    assert batch.to("meta").alignment.device.type == "meta"


def test_without_guidance_there_is_no_alignment():
    batch = make([([5, 6], [7])])
    assert batch.alignment is None
    assert batch.to("meta").alignment is None


@given(st.lists(sentences, min_size=1, max_size=5))
def test_padded_sources_are_the_source_side_of_a_batch(sources):
    batch = make([(source, []) for source in sources])
    source, mask, lengths = pad(arrays(sources))
    assert torch.equal(source, batch.source)
    assert torch.equal(mask, batch.source_mask)
    assert torch.equal(lengths, batch.source_lengths)


def lengths_of(examples):
    return np.asarray([a for a, _ in examples], np.int64), np.asarray([b for _, b in examples], np.int64)


@given(sizes, st.integers(1, 100), st.integers(0, 3))
def test_token_batches_hold_every_sentence_once_within_the_budget(examples, size, epoch):
    source, target = lengths_of(examples)
    plan = plan_batches(source, target, unit="tokens", size=size, seed=1, epoch=epoch)
    assert sorted(index for batch in plan for index in batch.tolist()) == list(range(len(examples)))
    for batch in plan:
        assert len(batch) == 1 or len(batch) * (target[batch].max() + 1) <= size


@given(sizes, st.integers(1, 100))
def test_token_batches_are_as_full_as_the_budget_allows(examples, size):
    _, target = lengths_of(examples)
    batches = cut_batches(sort_by_length(*lengths_of(examples)), target, unit="tokens", size=size)
    for batch, following in itertools.pairwise(batches):
        assert (len(batch) + 1) * (target[following[0]] + 1) > size


@given(sizes, st.integers(1, 10))
def test_sentence_batches_hold_every_sentence_once_and_are_full_but_one(examples, size):
    plan = plan_batches(*lengths_of(examples), unit="sentences", size=size, seed=1, epoch=0)
    assert sorted(index for batch in plan for index in batch.tolist()) == list(range(len(examples)))
    assert sum(len(batch) < size for batch in plan) <= 1
    assert all(len(batch) <= size for batch in plan)


@pytest.mark.parametrize("unit", ["tokens", "sentences"])
def test_a_plan_depends_on_seed_and_epoch_alone(unit):
    source, target = multi30k_like(2_000)

    def plan(seed, epoch):
        batches = plan_batches(source, target, unit=unit, size=200, seed=seed, epoch=epoch)
        return [tuple(batch.tolist()) for batch in batches]

    first = plan(3, 4)
    np.random.seed(5)
    torch.manual_seed(5)
    assert plan(3, 4) == first
    for other in (plan(4, 3), plan(3, 5), plan(2, 4)):
        # Not the order of the batches alone: what is in them changes too.
        same = set(map(frozenset, first)) & set(map(frozenset, other))
        assert len(same) < 0.1 * len(first)


@given(sizes, st.integers(1, 5), st.integers(1, 7), st.integers(0, 3))
def test_batches_of_all_processes_are_neighbors(examples, size, world_size, epoch):
    lengths = lengths_of(examples)
    options = {"unit": "sentences", "size": size, "seed": 1, "epoch": epoch}
    plan = [tuple(batch.tolist()) for batch in plan_batches(*lengths, **options, world_size=world_size)]
    single = {tuple(batch.tolist()) for batch in plan_batches(*lengths, **options)}
    assert set(plan) == single
    assert len(plan) == -(-len(single) // world_size) * world_size
    if len(single) >= world_size:
        spans = [(lengths[1][list(batch)].min(), lengths[1][list(batch)].max()) for batch in plan]
        for start in range(0, len(plan), world_size):
            row = spans[start : start + world_size]
            assert len(set(plan[start : start + world_size])) == world_size
            assert all(first[1] <= second[0] for first, second in itertools.pairwise(row))
            between = [span for span in spans if row[0][1] < span[0] and span[1] < row[-1][0]]
            assert all(span in row for span in between)


def test_batches_that_occur_twice_are_others_in_each_epoch():
    """Where they do not divide evenly among processes."""
    lengths = np.arange(1, 42), np.arange(1, 42)
    twice = []
    for epoch in range(20):  # 21 batches, 24 are needed
        batches = plan_batches(*lengths, unit="sentences", size=2, seed=1, epoch=epoch, world_size=4)
        plan = [tuple(batch.tolist()) for batch in batches]
        shortest = [min(batch) for batch in plan if plan.count(batch) > 1]
        assert len(shortest) == 6
        twice.append(min(shortest) // 8)
    assert len(set(twice)) > 2


def test_batches_are_not_ordered_by_length():
    source, target = multi30k_like(5_000)
    plan = plan_batches(source, target, unit="tokens", size=1_000, seed=1, epoch=0)
    widths = np.asarray([target[batch].max() for batch in plan], float)
    assert abs(np.corrcoef(widths, np.arange(len(widths)))[0, 1]) < 0.5


def multi30k_like(count):
    generator = np.random.default_rng(0)
    source = np.clip(generator.normal(15, 5, count), 3, 45).round().astype(np.int64)
    return source, np.clip(source + generator.normal(0, 3, count), 2, 50).round().astype(np.int64)


def padding_shares(source, target):
    plan = plan_batches(source, target, unit="tokens", size=4_096, seed=1, epoch=0)
    shares = [1 - (side + 1).sum() / sum(len(b) * (side[b].max() + 1) for b in plan) for side in (source, target)]
    return *shares, len(plan)


def test_little_padding_at_the_lengths_of_multi30k():
    source, target = multi30k_like(29_000)
    source_share, target_share, batches = padding_shares(source, target)
    assert target_share < 0.03
    assert source_share < 0.15
    assert batches < 1.1 * (target + 1).sum() / 4_096


@pytest.mark.corpus
@pytest.mark.skipif("MULTI30K" not in os.environ, reason="MULTI30K: a folder with train.en and train.de")
def test_little_padding_on_multi30k_itself():
    folder = Path(os.environ["MULTI30K"])
    source, target = (
        np.asarray([len(line.split()) for line in (folder / name).read_text("utf-8").split("\n")[:-1]])
        for name in ("train.en", "train.de")
    )
    assert len(source) == len(target) == 29_000
    assert padding_shares(source, target)[1] < 0.08


@settings(max_examples=20)
@given(st.integers(0, 2**31), st.integers(0, 50))
def test_a_sentence_longer_than_the_budget_is_a_batch_by_itself(seed, epoch):
    target = np.asarray([3, 99, 3, 120, 4])
    plan = plan_batches(np.full(5, 3), target, unit="tokens", size=20, seed=seed, epoch=epoch)
    assert sorted(batch.tolist() for batch in plan if len(batch) == 1) == [[1], [3]]
