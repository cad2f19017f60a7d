"""Tests of the fast path lend and give back arenas as it pleases them; nobody else is to be lent these."""

from collections import defaultdict

import pytest

from nmt.fast.arena import Arena
from nmt.models.seq2seq import Seq2Seq
from tests.models.small import name_of, small_model, variants


@pytest.fixture(autouse=True)
def own_arenas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arena, "_free", defaultdict(list))


@pytest.fixture(params=variants(), ids=name_of)
def model(request) -> Seq2Seq:
    return small_model(**request.param)
