"""Nearest neighbors against their formula, written down with every distance."""

import math
from typing import Any

import faiss
import numpy as np
import pytest
import torch

from nmt.config.schema import SearchConfig
from nmt.data.batch import Int64Array, collate
from nmt.data.tables import Ragged
from nmt.fast.accelerate import accelerate
from nmt.models import neighbors
from nmt.models.ensemble import Ensemble
from nmt.models.neighbors import Datastore, build, use_neighbors
from nmt.models.seq2seq import Seq2Seq
from nmt.search.beam import beam_search
from tests.models.small import VOCAB, random_batch, small_model

SETTINGS = SearchConfig(neighbors=4, neighbor_weight=0.3, neighbor_temperature=0.5)
LENGTHS = [(5, 4), (1, 7), (9, 1), (3, 3)]


def exact(features: torch.Tensor, tokens: list[int], scale: float) -> Datastore:
    """A datastore that compares with every pair, in full precision."""
    index = faiss.IndexFlatL2(features.shape[1])
    index.add(features.float().numpy())
    return Datastore(index, np.stack([np.array(tokens, np.int32)] * 3, axis=1), scale)


def corpus(pairs: int) -> tuple[Ragged, Ragged, Int64Array]:
    """Random sentences of both sides, and their rows."""
    generator = np.random.default_rng(0)
    source, target = (
        Ragged.of([generator.integers(4, VOCAB, generator.integers(1, 9)).tolist() for _ in range(pairs)]) for _ in "ab"
    )
    return source, target, np.arange(pairs)


@pytest.fixture
def model() -> Seq2Seq:
    return small_model(decoder="luong", cell="lstm").float().eval()


@pytest.fixture(params=["compares with all", "divided into cells"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds of index, whatever the size of the text."""
    monkeypatch.setattr(neighbors, "SMALL", math.inf if request.param == "compares with all" else 0)


@pytest.mark.parametrize("fast", [False, True])
@torch.inference_mode()
def test_predictions_are_those_of_the_formula(model: Seq2Seq, fast: bool) -> None:
    size = model.output.in_features
    keys, tokens = torch.randn(20, size), [5, 5, 6, 7] * 5
    queries = torch.randn(2, 3, size)
    alone = model.predict(queries).exp()
    use_neighbors(accelerate(model) if fast else model, exact(keys, tokens, scale=3.0), SETTINGS)
    mixed = model.predict(queries)
    for query, before, after in zip(queries.flatten(0, 1), alone.flatten(0, 1), mixed.flatten(0, 1), strict=True):
        distances = sorted(
            (float((query - key).square().sum()), token) for key, token in zip(keys, tokens, strict=True)
        )
        similar = [(math.exp(-distance / (0.5 * 3.0)), token) for distance, token in distances[:4]]
        total = sum(similarity for similarity, _ in similar)
        expected = [
            0.7 * float(before[y]) + 0.3 * sum(s for s, token in similar if token == y) / total for y in range(VOCAB)
        ]
        torch.testing.assert_close(after.exp(), torch.tensor(expected), rtol=1e-4, atol=1e-6)


@torch.inference_mode()
def test_places_that_hold_nothing_count_for_nothing(model: Seq2Seq) -> None:
    size = model.output.in_features
    use_neighbors(model, exact(torch.zeros(1, size), [6], scale=1.0), SETTINGS)
    probabilities = model.predict(torch.randn(1, size)).exp()
    assert float(probabilities.sum()) == pytest.approx(1.0, abs=1e-5)
    assert float(probabilities[0, 6]) > 0.3


@torch.inference_mode()
def test_cells_that_hold_nothing_leave_the_prediction_to_the_model(model: Seq2Seq) -> None:
    """As those of a text that repeats one line can be."""
    size = model.output.in_features
    queries = torch.randn(3, size)
    alone = model.predict(queries)
    datastore = Datastore(faiss.IndexFlatL2(size), np.zeros((1, 3), np.int32), 0.001)
    use_neighbors(model, datastore, SETTINGS)
    torch.testing.assert_close(model.predict(queries), alone + math.log(0.7))


@torch.inference_mode()
def test_at_the_lowest_temperatures_the_nearest_alone_counts(model: Seq2Seq) -> None:
    keys = torch.randn(20, model.output.in_features)
    datastore = exact(keys, list(range(20)), scale=1e-12)
    search = SearchConfig(neighbors=4, neighbor_temperature=1e-45)
    weights, places = datastore.nearest(keys + 0.01, search)
    assert weights.tolist() == [[1.0, 0.0, 0.0, 0.0]] * 20
    assert places[:, 0].tolist() == list(range(20))


@pytest.mark.usefixtures("kind")
@torch.inference_mode()
def test_cells_that_hold_too_few_leave_the_others_without_weight(model: Seq2Seq) -> None:
    datastore = build(model, *corpus(40))
    size = datastore.index.ntotal
    weights, places = datastore.nearest(torch.randn(5, model.output.in_features), SearchConfig(neighbors=size + 9))
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(5))
    assert (weights[:, -9:] == 0).all()
    assert ((places >= 0) & (places < size)).all()


@pytest.mark.usefixtures("kind")
def test_a_datastore_holds_every_target_token_after_its_features(
    model: Seq2Seq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbors, "BATCH", 40)  # many batches
    source, target, rows = corpus(60)
    datastore = build(model, source, target, rows)
    assert len(datastore.tokens) == datastore.index.ntotal == int(target.lengths.sum()) + 60
    with torch.inference_mode():
        for row in range(60):
            batch = collate([source[row]], [target[row]], np.array([row]))
            _, places = datastore.nearest(model(batch).features[0], SearchConfig(neighbors=64))
            for position, token in enumerate(batch.target_out[0].tolist()):
                assert [token, row, position] in datastore.places[places[position]].tolist()


@pytest.mark.usefixtures("kind")
def test_the_same_text_gives_the_same_datastore(model: Seq2Seq) -> None:
    first, second = build(model, *corpus(40)), build(model, *corpus(40))
    assert torch.equal(first.tokens, second.tokens)
    assert first.scale == second.scale
    assert np.array_equal(faiss.serialize_index(first.index), faiss.serialize_index(second.index))


def distances_to_16th(datastore: Datastore) -> torch.Tensor:
    features = torch.from_numpy(datastore.index.reconstruct_n(0, datastore.index.ntotal)).double()
    return torch.cdist(features, features).square().sort(dim=1).values[:, min(16, len(features) - 1)]


@pytest.mark.parametrize("pairs", [1, 2, 30])
def test_the_scale_is_the_usual_distance_to_the_16th_neighbor(model: Seq2Seq, pairs: int) -> None:
    datastore = build(model, *corpus(pairs))
    assert datastore.scale == pytest.approx(float(distances_to_16th(datastore).quantile(0.5)) or 1.0, rel=0.01)


def test_in_a_large_text_the_scale_is_that_of_what_the_search_finds(
    model: Seq2Seq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbors, "SMALL", 500)
    datastore = build(model, *corpus(300))
    expected = float(distances_to_16th(datastore).quantile(0.5))
    assert expected * 0.99 <= datastore.scale <= expected * 1.5


@torch.inference_mode()
def test_the_model_and_its_search_use_the_neighbors(model: Seq2Seq) -> None:
    """Nearly all of the weight on neighbors that always say 7: the search says 7 until it must end."""
    batch = random_batch(LENGTHS)
    search = SearchConfig(neighbors=1, neighbor_weight=0.999)
    before = model.log_probs(batch)
    use_neighbors(model, exact(torch.zeros(1, model.output.in_features), [7], scale=1.0), search)
    inputs = (batch.source, batch.source_mask, batch.source_lengths)
    models: tuple[Any, ...] = (model, Ensemble([model, model]))
    for searched in models:
        found = beam_search(searched, *inputs, beam_size=2, max_lengths=torch.full((4,), 5))
        assert [best.tokens for best, *_ in found] == [[7] * 5] * 4
    after = model.log_probs(batch)
    others = batch.target_mask & (batch.target_out != 7)
    torch.testing.assert_close(after[others], before[others] + math.log(0.001))
