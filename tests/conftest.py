"""Every test runs with the shapes and types of nmt's signatures checked."""

from collections.abc import Iterator

import hypothesis
import jaxtyping
import pytest

# Before any test imports nmt. The numeric tower: an int will do for a float, as type checkers have it.
jaxtyping.install_import_hook("nmt", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

# The same examples every time, and no time limit on machines that are busy.
hypothesis.settings.register_profile("nmt", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.load_profile("nmt")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """The same random numbers in every test, whatever ran before it."""
    import random

    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
