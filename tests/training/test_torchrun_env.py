"""Ranks read from the variables that torchrun sets."""

import pytest

from nmt.errors import UserError
from nmt.training.torchrun_env import RankEnvironment

GIVEN = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


def test_a_place_among_several_is_read() -> None:
    environment = RankEnvironment.of(GIVEN)
    assert (environment.rank, environment.local_rank, environment.world_size, environment.is_rank_zero) == (
        3,
        1,
        4,
        False,
    )
    assert RankEnvironment.of({**GIVEN, "RANK": "0"}).is_rank_zero


@pytest.mark.parametrize("environment", [{}, {"WORLD_SIZE": "1"}, {"WORLD_SIZE": "1", "RANK": "0"}, {"RANK": "7"}])
def test_without_company_a_process_is_the_first(environment: dict[str, str]) -> None:
    assert RankEnvironment.of(environment) == RankEnvironment()
    assert RankEnvironment().is_rank_zero


@pytest.mark.parametrize(
    "change",
    [{"RANK": "4"}, {"RANK": "-1"}, {"RANK": ""}, {"LOCAL_RANK": "x"}, {"WORLD_SIZE": "many"}, {"MASTER_PORT": ""}],
)
def test_a_place_that_cannot_be_is_the_users_error(change: dict[str, str]) -> None:
    with pytest.raises(UserError, match=r"RANK=.* do not identify this process .*start it with torchrun"):
        RankEnvironment.of({**GIVEN, **change})


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"])
def test_a_variable_that_is_missing_is_the_users_error(name: str) -> None:
    with pytest.raises(UserError, match="process among several"):
        RankEnvironment.of({given: value for given, value in GIVEN.items() if given != name})
