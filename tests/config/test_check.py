"""Bounds, choices and names, and what is said of wrong ones."""

import re
from typing import Any

import numpy as np
import pytest

from nmt.config.check import check, unknown_key
from nmt.config.schema import TrainConfig
from nmt.errors import UserError


def test_bounds() -> None:
    config = TrainConfig()
    config.model.dropout = 1.0
    with pytest.raises(UserError, match=r"model\.dropout=1\.0 is out of range: it must be below 1"):
        check(config)


def test_a_character_coverage_that_sentencepiece_refuses() -> None:
    config = TrainConfig()
    config.tokenizer.character_coverage = 0.95
    with pytest.raises(UserError, match=r"character_coverage=0\.95 is out of range: it must be at least 0\.98"):
        check(config)


@pytest.mark.parametrize(("value", "passes"), [(0.0, False), (1e-9, True), (float("nan"), False)])
def test_a_bound_that_is_not_reached(value: float, passes: bool) -> None:
    config = TrainConfig()
    config.optimizer.learning_rate = value
    if passes:
        check(config)
    else:
        with pytest.raises(UserError, match="learning_rate"):
            check(config)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([0.9], r"optimizer\.betas=\[0\.9\] has 1 elements: it must have 2"),
        ([0.9, 0.98, 0.99], "has 3 elements: it must have 2"),
        ([0.9, 1.5], r"optimizer\.betas=\[0\.9, 1\.5\] is out of range: each must be below 1"),
        ([-0.1, 0.9], "each must be at least 0"),
        ([float("nan"), 0.9], "each must be at least 0"),
    ],
)
def test_bounds_of_a_list_are_those_of_its_elements(value: list[float], message: str) -> None:
    config = TrainConfig()
    config.optimizer.betas = value
    with pytest.raises(UserError, match=message):
        check(config)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("seed", "5", "int"),
        ("seed", 2.5, "int"),
        ("seed", None, "int"),
        ("threads", "all", "int or null"),
        ("lowercase", "yes", "bool"),
        ("trainer.ema_decay", "0.9", "float or null"),
        ("optimizer.betas", (0.9, 0.98), "list[float]"),
    ],
)
def test_a_value_of_another_type(name: str, value: Any, allowed: str) -> None:
    """From Python: text of a command line or a file is converted, or refused, before."""
    config = TrainConfig()
    group, _, last = name.rpartition(".")
    setattr(getattr(config, group) if group else config, last, value)
    shown = "null" if value is None else repr(value)
    with pytest.raises(UserError, match=re.escape(f"{name}={shown} has the wrong type: it must be {allowed}")):
        check(config)


def test_numbers_of_other_libraries() -> None:
    config: Any = TrainConfig()
    config.seed, config.model.dropout, config.trainer.ema_decay = np.int64(3), np.float32(0.5), 1
    with pytest.raises(UserError, match="ema_decay=1 is out of range"):
        check(config)


@pytest.mark.parametrize("seed", [2**63, 2**70, 10**400])
def test_a_seed_that_no_generator_takes(seed: int) -> None:
    config = TrainConfig(seed=seed)
    with pytest.raises(UserError, match=rf"seed={seed} is out of range: it must be at most {2**63 - 1}"):
        check(config)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("batch.size", 2**31 - 1),
        ("model.hidden_size", 2**31 - 1),
        ("search.beam_size", 10_000),
        ("trainer.max_steps", 2**31 - 1),
    ],
)
def test_an_integer_that_is_too_large(name: str, most: int) -> None:
    config: Any = TrainConfig()
    group, _, last = name.partition(".")
    setattr(getattr(config, group), last, 10**20)
    with pytest.raises(UserError, match=rf"{name}={10**20} is out of range: it must be at most {most}"):
        check(config)


def test_choices_name_the_nearest() -> None:
    config = TrainConfig()
    config.model.cell = "grru"
    with pytest.raises(UserError, match=r"unknown model\.cell 'grru': choose one of gru, lstm; did you mean 'gru'\?"):
        check(config)


def test_null_stands_for_no_choice() -> None:
    config = TrainConfig()
    config.bleu_tokenize = None
    check(config)
    config.bleu_tokenize = "14a"
    with pytest.raises(UserError, match=r"unknown bleu_tokenize '14a': choose one of 13a, .*; did you mean '13a'"):
        check(config)


def test_a_key_added_from_outside_is_found() -> None:
    config = TrainConfig()
    config.model.hiden_size = 3  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"unknown key 'model\.hiden_size'; did you mean 'model\.hidden_size'"):
        check(config)


@pytest.mark.parametrize(
    ("given_key", "suggested"),
    [
        ("model.hiden_size", "model.hidden_size"),
        ("hidden_size", "model.hidden_size"),
        ("model.attention.scor", "model.attention.score"),
        ("modle", "model"),
        ("sead", "seed"),
        ("trainer.max_step", "trainer.max_steps"),
    ],
)
def test_the_nearest_key_is_suggested(given_key: str, suggested: str) -> None:
    assert str(unknown_key(given_key, TrainConfig())).endswith(f"did you mean {suggested!r}?")


def test_nothing_is_suggested_for_a_key_like_no_other() -> None:
    assert str(unknown_key("model.zork", TrainConfig())) == "unknown key 'model.zork' (--cfg job lists all keys)"
