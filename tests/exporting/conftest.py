"""Shapes are not checked while a model is traced: there a size is a tensor."""

import contextlib
from collections.abc import Iterator

import jaxtyping
import pytest

from nmt.exporting import graphs


@pytest.fixture(autouse=True)
def unchecked_while_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    tracing_problems = graphs.tracing_problems

    @contextlib.contextmanager
    def unchecked() -> Iterator[list[str]]:
        jaxtyping.config.update("jaxtyping_disable", True)
        try:
            with tracing_problems() as problems:
                yield problems
        finally:
            jaxtyping.config.update("jaxtyping_disable", False)

    monkeypatch.setattr(graphs, "tracing_problems", unchecked)
