"""Tests of the fast path lend and give back arenas as it pleases them; nobody else is to be lent these."""

from collections import defaultdict

import pytest

from nmt.models.fast.arena import Arena


@pytest.fixture(autouse=True)
def own_arenas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Arena, "_free", defaultdict(list))
