"""The training stream: complete, resumable at any batch, the same for every way of getting there."""

import gc
import logging
import multiprocessing
import types
import weakref
from dataclasses import replace
from itertools import islice

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.alignment.targets import AlignmentTargets, target_attention
from nmt.config.schema import BatchConfig, TokenizerConfig
from nmt.data.batch import Batch, TrainLoader, fixed_batches, plan_batches
from nmt.data.tables import EncodedCorpus, Ragged
from nmt.errors import UserError
from nmt.text.tokenizer import build_tokenizers

WORDS = ["river", "stone", "window", "garden", "letter", "morning", "teacher", "yellow", "walking", "quiet", "mountain"]


@pytest.fixture(scope="module")
def corpus():
    generator = np.random.default_rng(0)
    lines = [" ".join(generator.choice(WORDS, generator.integers(1, 9))) for _ in range(120)]
    # Two pairs in three have links, from the first word to the last and from the last to the first.
    links = ["" if row % 3 == 0 else f"0-{len(lines[-1 - row].split()) - 1}" for row in range(120)]
    links = [f"{link} {len(line.split()) - 1}?0" if link else "" for link, line in zip(links, lines, strict=True)]
    return datasets.Dataset.from_dict({"source": lines, "target": lines[::-1], "alignment": links})


@pytest.fixture(scope="module")
def tokenizers(corpus):
    return build_tokenizers(corpus["source"], corpus["target"], TokenizerConfig(vocab_size=320))


@pytest.fixture(scope="module")
def encoded(corpus, tokenizers):
    sides = (getattr(tokenizers, side).encode(corpus[side]) for side in ("source", "target"))
    return EncodedCorpus(corpus, *map(Ragged.of, sides))


@pytest.fixture(scope="module")
def make(encoded, tokenizers):
    def make_loader(*, seed=1, size=60, unit="tokens", max_length=250, window=100_000, guided=False, **options):
        config = BatchConfig(unit=unit, size=size, max_length=max_length, window=window)
        guide = AlignmentTargets(encoded.corpus, tokenizers) if guided else None
        return TrainLoader(encoded, tokenizers, config, seed=seed, alignment_targets=guide, **options)

    return make_loader


def stream(loader):
    """Batches for ever."""
    while True:
        yield from loader


def contents(batches):
    return [(b.rows.tolist(), b.source.tolist(), b.target_out.tolist()) for b in batches]


def test_an_epoch_holds_every_pair_once_with_its_own_ids(make, encoded):
    loader = make()
    expected = len(loader)
    batches = list(loader)
    assert len(batches) == expected > 5
    assert sorted(row for batch in batches for row in batch.rows.tolist()) == list(range(len(encoded)))
    for batch in batches:
        for i, row in enumerate(batch.rows.tolist()):
            assert batch.source[i][batch.source_mask[i]].tolist() == [*encoded.source[row].tolist(), 3]
            assert batch.target_out[i][batch.target_mask[i]].tolist() == [*encoded.target[row].tolist(), 3]


def test_the_order_is_the_plan_of_seed_and_epoch(make, encoded):
    loader = make(seed=7)
    for epoch in range(3):
        assert (loader.epoch, loader.position) == (epoch, 0)
        lengths = (encoded.source.lengths, encoded.target.lengths)
        plan = plan_batches(*lengths, unit="tokens", size=60, seed=7, epoch=epoch)
        assert [b.rows.tolist() for b in loader] == [rows.tolist() for rows in plan]


def test_position_counts_the_batches_handed_out(make):
    loader = make()
    for number, _ in enumerate(loader, start=1):
        assert (loader.epoch, loader.position) == (0, number)
    assert (loader.epoch, loader.position) == (1, 0)


@pytest.mark.parametrize(("sampling", "window"), [(0.0, 100_000), (0.1, 100_000), (0.0, 40), (0.1, 70)])
@settings(max_examples=10, deadline=None)
@given(taken=st.integers(0, 50))
def test_a_restored_stream_goes_on_with_the_very_next_batch(make, sampling, window, taken):
    uncut = make(sampling=sampling, seed=3, window=window)
    before = stream(uncut)
    list(islice(before, taken))
    state = uncut.state_dict()
    restored = make(sampling=sampling, seed=4, window=window)
    next(iter(restored))
    restored.load_state_dict(state)
    assert restored.state_dict() == state
    assert contents(islice(stream(restored), 30)) == contents(islice(before, 30))


@pytest.mark.parametrize("sampling", [0.0, 0.1])
def test_the_windows_of_an_epoch_hold_every_pair_once(make, encoded, sampling):
    """Three windows of neighbors, others in each epoch; with sampling another process makes them."""
    loader = make(window=40, sampling=sampling)
    groups = []
    for epoch in range(2):
        parts: list[set[int]] = [set(), set(), set()]
        read = []
        for batch in loader:
            parts[loader.window].update(batch.rows.tolist())
            read.append(loader.epochs - epoch)
        assert read == sorted(read)
        assert read[-1] == pytest.approx(1)
        assert loader.epochs == epoch + 1
        assert sorted(row for part in parts for row in part) == list(range(len(encoded)))
        assert all(38 <= len(part) <= 42 for part in parts), parts
        groups.append(parts)
    assert groups[0] != groups[1]


def test_for_a_gpu_an_epoch_is_sampled_during_the_one_before(make, monkeypatch):
    """By another process, though the corpus is one window; the batches are those without it."""
    monkeypatch.setattr(Batch, "pin_memory", lambda batch: batch)
    here, ahead = (make(sampling=0.2, pin_memory=for_gpu) for for_gpu in (False, True))
    assert here._windows.count == ahead._windows.count == 1
    assert contents(islice(stream(here), 40)) == contents(islice(stream(ahead), 40))
    assert here.epoch == ahead.epoch > 1
    assert isinstance(ahead._windows_ahead, types.GeneratorType)
    assert not isinstance(here._windows_ahead, types.GeneratorType)


def test_a_window_is_a_function_of_seed_and_place(make):
    """What a process ahead of time makes is what is made when asked."""
    loader = make(window=50, sampling=0.2, guided=True)
    streamed = contents(islice(stream(loader), 40))
    windows = make(window=50, sampling=0.2)._windows
    made = [(epoch, number) for epoch in range(9) for number in range(windows.count)]
    alone = [window.batch(index, None) for window in map(windows.plan, made) for index in range(len(window.batches))]
    assert streamed == contents(alone[:40])


def test_a_loader_that_is_done_with_ends_its_process(make):
    """At once: it is in no cycle, which Python would find some time later."""
    before = set(multiprocessing.active_children())
    loader = make(window=40, sampling=0.1)
    next(iter(loader))
    gone = weakref.ref(loader)
    (process,) = set(multiprocessing.active_children()) - before
    gc.disable()
    try:
        del loader
        assert gone() is None
        assert not process.is_alive()
    finally:
        gc.enable()


def test_blocks_of_neighbors_make_a_window(make):
    rows = np.sort(make(window=110)._windows.plan((0, 0)).batches[0])
    blocks = make(window=110)._windows._rows(0, 0)
    assert len(rows) <= len(blocks)
    assert (np.diff(blocks) > 0).all()
    assert len(blocks) in (59, 60, 61)


def test_padding_of_a_window_is_small(encoded, tokenizers):
    """A hundred thousand pairs of lengths that vary as those of text do: less than 8% of the target is padding."""
    generator = np.random.default_rng(1)
    source = np.clip(generator.lognormal(3.2, 0.5, 300_000), 1, 200).astype(np.int64)
    target = np.clip(source * generator.lognormal(0, 0.15, len(source)), 1, 200).astype(np.int64)
    sides = [Ragged(np.zeros(0, np.int32), np.cumsum([0, *side])) for side in (source, target)]
    loader = TrainLoader(EncodedCorpus(encoded.corpus, *sides), tokenizers, BatchConfig(), seed=1)
    assert loader._windows.count == 3
    for side, limit in ((source, 0.08), (target, 0.02)):
        window = loader._windows.plan((0, 1))
        real = sum((side[batch] + 1).sum() for batch in window.batches)
        padded = sum(len(batch) * (side[batch].max() + 1) for batch in window.batches)
        assert 1 - real / padded < limit


def test_a_state_of_before_there_were_windows(make):
    loader = make()
    list(islice(loader, 3))
    state = loader.state_dict()
    del state["window"]
    restored = make(seed=9)
    restored.load_state_dict(state)
    assert contents(islice(stream(restored), 5)) == contents(islice(stream(loader), 5))


def test_breaking_off_an_epoch_and_going_on_loses_nothing(make):
    whole = contents(make())
    loader = make()
    pieces = []
    while loader.epoch == 0:
        pieces += contents(islice(loader, 3))
    assert pieces == whole


def test_the_state_is_plain_and_survives_a_safe_load(make, tmp_path):
    loader = make()
    list(islice(loader, 2))
    torch.save(loader.state_dict(), tmp_path / "state.pt")
    assert torch.load(tmp_path / "state.pt", weights_only=True) == loader.state_dict()


def test_the_stream_leaves_torchs_random_numbers_alone(make):
    before = torch.get_rng_state()
    list(islice(stream(make(sampling=0.1)), 20))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"size": 61}, "batch.size was 60 and is now 61"),
        ({"unit": "sentences"}, "batch.unit was tokens and is now sentences"),
        ({"max_length": 5}, "the number of training pairs was 120 and is now"),
        ({"world_size": 2}, "the number of processes was 1 and is now 2"),
        ({"sampling": 0.1}, "tokenizer.sampling was 0.0 and is now 0.1"),
        ({"window": 60}, "batch.window was larger than the corpus and is now 60"),
    ],
)
def test_a_state_of_other_batches_is_refused(make, change, name):
    state = make().state_dict()
    with pytest.raises(UserError, match=f"cannot continue the training data .*: {name}.*; restore it, or start"):
        make(**change).load_state_dict(state)


def test_a_state_of_other_text_is_refused(make, encoded, tokenizers):
    """As many pairs and tokens, but the sides are out of step, or swapped."""
    state = make().state_dict()
    shuffled = Ragged.of([encoded.target[row].tolist() for row in np.random.default_rng(0).permutation(120).tolist()])
    for sides in ((encoded.source, shuffled), (encoded.target, encoded.source)):
        other = TrainLoader(EncodedCorpus(encoded.corpus, *sides), tokenizers, BatchConfig(size=60), seed=1)
        with pytest.raises(UserError, match=r"checksum of the training text was \w{8} and is now \w{8}; restore"):
            other.load_state_dict(state)


def test_a_state_of_before_there_was_a_checksum(make):
    state = make().state_dict()
    del state["order"]["the checksum of the training text"], state["order"]["batch.window"]
    make().load_state_dict(state)


def test_a_state_of_several_windows_is_refused_by_one(make):
    loader = make(window=60)
    list(islice(loader, 9))
    assert loader.window > 0
    with pytest.raises(UserError, match=r"batch\.window was 60 and is now larger than the corpus"):
        make().load_state_dict(loader.state_dict())


@pytest.mark.parametrize(("world_size", "window"), [(2, 100_000), (3, 100_000), (100, 100_000), (2, 40), (3, 40)])
def test_ranks_share_an_epoch_evenly(make, encoded, world_size, window):
    """Every pair has its turn, few twice; all take equally many batches, alike in length at any one time."""
    loaders = [make(rank=rank, world_size=world_size, window=window) for rank in range(world_size)]
    shares = [list(loader) for loader in loaders]
    single = {tuple(b.rows.tolist()) for b in make(window=window)}
    windows = -(-120 // window)
    if windows == 1:
        assert {len(share) for share in shares} == {-(-len(single) // world_size)}
    assert len({len(share) for share in shares}) == 1
    shared = [tuple(b.rows.tolist()) for share in shares for b in share]
    assert set(shared) == single
    assert 0 <= len(shared) - len(single) < world_size * windows
    assert {(loader.epoch, loader.position) for loader in loaders} == {(1, 0)}


def test_batches_of_one_time_are_neighbors_in_length(make):
    loaders = [make(rank=rank, world_size=2) for rank in range(2)]
    for _ in range(3):  # epochs: one batch comes twice, at another place in each
        pairs = list(zip(*loaders, strict=True))
        ranges = sorted(
            sorted((b.target_mask.sum(1).min(), b.target_mask.sum(1).max()) for b in pair) for pair in pairs
        )
        assert all(first[1] <= second[0] for first, second in ranges)


def test_sampling_segments_anew_in_each_epoch_and_reproducibly(make, tokenizers, corpus):
    loader = make(sampling=0.1)
    first, second = contents(loader), contents(loader)
    assert first == contents(make(sampling=0.1))
    plain = {row: source for rows, sources, _ in contents(make()) for row, source in zip(rows, sources, strict=True)}
    by_row = [
        {r: s for rows, sources, _ in epoch for r, s in zip(rows, sources, strict=True)} for epoch in (first, second)
    ]
    assert by_row[0] != by_row[1]
    assert by_row[0] != plain
    for rows, sources, targets in first:
        assert tokenizers.source.decode(sources) == corpus[rows]["source"]
        assert tokenizers.target.decode(targets) == corpus[rows]["target"]


def test_both_sides_are_segmented_by_chances_of_their_own(make, encoded):
    """Of two sides of the same text, in which the same chances would divide the same words."""
    loader = make(sampling=0.3)
    windows = loader._windows
    same = replace(
        windows, encoded=replace(encoded, corpus=encoded.corpus.map(lambda pair: {"target": pair["source"]}))
    )
    same = replace(same, tokenizers=replace(windows.tokenizers, target=windows.tokenizers.source))
    source, target = same.plan((0, 0)).sides
    assert source.ids.tolist() != target.ids.tolist()


def test_sampled_batches_are_planned_by_the_lengths_they_have(make):
    """No more positions than asked for, and no more padding than without sampling, but for chance."""
    fills = []
    for sampling in (0.0, 0.5):
        batches = list(make(sampling=sampling))
        assert all(batch.target_mask.numel() <= 60 or len(batch) == 1 for batch in batches)
        fills.append(sum(b.num_target_tokens for b in batches) / sum(b.target_mask.numel() for b in batches))
    assert fills[1] > fills[0] - 0.03


@pytest.mark.parametrize("sampling", [0.0, 0.1])
def test_a_guided_batch_teaches_the_segmentation_that_it_holds(make, tokenizers, corpus, sampling):
    for batch, unguided in zip(make(sampling=sampling, guided=True), make(sampling=sampling), strict=True):
        assert unguided.alignment is None
        assert contents([batch]) == contents([unguided])
        for i, row in enumerate(batch.rows.tolist()):
            sides = (batch.source[i][batch.source_mask[i]], batch.target_out[i][batch.target_mask[i]])
            source, target = (side[:-1].tolist() for side in sides)
            words = [np.array(tokenizers.source.words(ids)[1]) for ids in (source, target)]
            expected = np.zeros(batch.alignment.shape[1:])
            expected[: len(target), : len(source)] = target_attention(corpus["alignment"][row], *words)
            assert bool(expected.any()) == (row % 3 != 0)
            np.testing.assert_array_equal(batch.alignment[i], expected.astype(np.float32))


def test_a_restored_stream_goes_on_with_the_same_guidance(make):
    uncut, restored = (make(sampling=0.1, guided=True) for _ in range(2))
    before = stream(uncut)
    list(islice(before, 7))
    restored.load_state_dict(uncut.state_dict())
    for left, right in islice(zip(stream(restored), before, strict=False), 20):
        assert torch.equal(left.alignment, right.alignment)


def test_long_pairs_are_left_out_and_counted_once(make, encoded, caplog):
    longest = np.maximum(encoded.source.lengths, encoded.target.lengths)
    with caplog.at_level(logging.INFO, logger="nmt.data.batch"):
        loader = make(max_length=6)
        rows = [row for epoch in range(2) for batch in loader for row in batch.rows.tolist()]
    assert sorted(rows) == sorted(2 * np.flatnonzero(longest <= 6).tolist())
    left_out = (longest > 6).sum()
    assert [r.message for r in caplog.records] == [f"left out {left_out} training pairs longer than 6 subwords"]
    assert left_out > 0


def test_pairs_with_a_side_without_subwords_are_left_out(encoded, tokenizers, caplog):
    """As of spaces of no width, which are text, but which normalization drops."""
    source, target = (list(map(np.ndarray.tolist, side)) for side in (encoded.source, encoded.target))
    source[3], target[5] = [], []
    holes = EncodedCorpus(encoded.corpus, Ragged.of(source), Ragged.of(target))
    with caplog.at_level(logging.INFO, logger="nmt.data.batch"):
        loader = TrainLoader(holes, tokenizers, BatchConfig(unit="tokens", size=60), seed=1)
    assert sorted(row for batch in loader for row in batch.rows) == [
        row for row in range(len(source)) if row not in (3, 5)
    ]
    assert [r.message for r in caplog.records] == ["left out 2 training pairs with a side without subwords"]


def test_a_corpus_of_nothing_but_long_pairs_is_the_users_error(make):
    with pytest.raises(UserError, match=r"no training pair is left: every one of 120 .* batch.max_length=1 subwords"):
        make(max_length=1)


@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_fixed_batches_hold_every_pair_once_within_the_budget(encoded, size):
    batches = list(fixed_batches(encoded.source, encoded.target, size))
    assert sorted(row for batch in batches for row in batch.rows.tolist()) == list(range(len(encoded)))
    assert all(len(batch) == 1 or batch.target_out.numel() <= size for batch in batches)
    widths = [batch.target_out.shape[1] for batch in batches]
    assert widths == sorted(widths)
    assert contents(batches) == contents(fixed_batches(encoded.source, encoded.target, size))
