"""The schema: documented, with defaults that can be."""

import dataclasses
import random
import runpy

import numpy as np
import pytest
import torch

from nmt.config.check import check
from nmt.config.schema import LARGEST_SEED, EvaluateConfig, EvaluateSearchConfig, SearchConfig, TrainConfig, keys
from tests.runs import ROOT


@pytest.mark.parametrize("schema", [TrainConfig, EvaluateConfig])
def test_every_key_is_documented_and_every_default_passes(schema: type) -> None:
    check(schema())
    for name, member, _ in keys(schema()):
        assert member.metadata["help"], name


def test_every_generator_takes_the_largest_seed() -> None:
    check(TrainConfig(seed=LARGEST_SEED))
    torch.Generator().manual_seed(LARGEST_SEED)
    for taker in (np.random.default_rng, random.Random):
        taker(LARGEST_SEED)


def test_all_of_the_search_can_be_set_when_evaluating() -> None:
    trained, evaluated = (dataclasses.fields(each) for each in (SearchConfig, EvaluateSearchConfig))
    assert [each.name for each in evaluated] == [each.name for each in trained]
    assert [each.metadata for each in evaluated] == [each.metadata for each in trained]
    assert {each.default for each in evaluated} == {None}


def test_the_documentation_is_current() -> None:
    root = ROOT
    script = runpy.run_path(str(root / "scripts" / "write_configuration_docs.py"))
    current = (root / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert current == script["render"](), "run: python scripts/write_configuration_docs.py"
