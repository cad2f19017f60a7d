"""The time of each run, and the check that the runs of a folder have the same settings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from nmt.config.file import save_config
from nmt.config.schema import TrainConfig
from nmt.errors import UserError


@pytest.mark.parametrize("workers", [1, 2, 64])
@pytest.mark.parametrize(("minutes", "runs"), [(20.0, 96), (3.0, 13), (20.0, 3), (384.0, 96)])
def test_runs_share_the_time(script: Callable[[str], Any], minutes: float, runs: int, workers: int) -> None:
    settings: dict[str, Any] = {"output": Path("o"), "steps": None, "common": [], "overrides": []}
    study = script("studies.study").Study(minutes=minutes, workers=workers, **settings)
    rounds = -(-runs // workers)
    assert 0.25 * minutes <= rounds * study.training_minutes(runs) < minutes
    assert study.training_minutes(runs, overhead=0.01) >= study.training_minutes(runs)


@pytest.mark.parametrize("workers", [1, 2])
def test_runs_side_by_side_have_a_thread_each(script: Callable[[str], Any], workers: int) -> None:
    module = script("studies.study")
    parser = module.build_parser("", minutes=1.0)
    module.add_workers(parser)
    study = module.Study.from_options(parser.parse_args(["--workers", str(workers)]), "x")
    assert study.configure().threads == (None if workers == 1 else 1)
    assert (
        module.Study.from_options(parser.parse_args(["--threads", "3", "--workers", "2"]), "x").configure().threads == 3
    )


@pytest.mark.parametrize(
    ("override", "option"),
    [("seed=2", "--seed"), ("++run_dir=x", "--output"), ("model.attention.score=dot", "--scores")],
)
def test_what_the_study_chooses_is_no_override(script: Callable[[str], Any], override: str, option: str) -> None:
    module = script("studies.study")
    options = module.build_parser("", minutes=1.0).parse_args(["model.cell=lstm", override])
    with pytest.raises(UserError, match=f"is chosen by {option} here"):
        module.Study.from_options(options, "x", {"model.attention.score": "--scores"})


@pytest.fixture
def checked(
    script: Callable[[str], Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Callable[[dict[str, Any], dict[str, Any]], str]:
    """Output of `check_settings` for a run and a configuration that differ from the defaults in these keys."""
    module = script("studies.study")

    def run(before: dict[str, Any], now: dict[str, Any], **options: bool) -> str:
        configs = []
        for changes in (before, now):
            composed = OmegaConf.structured(TrainConfig(run_dir=str(tmp_path)))
            for name, value in changes.items():
                OmegaConf.update(composed, name, value)
            configs.append(OmegaConf.to_object(composed))
        save_config(configs[0], tmp_path / "config.yaml")
        module.check_settings([configs[1]], **options)
        return capfd.readouterr().err

    return run


@pytest.mark.parametrize(
    ("name", "before", "now"),
    [
        ("seed", 1, 2),
        ("model.attention.radius", 2, 5),
        ("data.grammar.max_length", 7, 60),
        ("trainer.max_steps", None, 9),
        ("optimizer.betas", [0.9, 0.98], [0.9, 0.999]),
        ("data.train.source", None, ["a.en", "b.en"]),
    ],
)
def test_other_settings_are_refused(checked: Any, tmp_path: Path, name: str, before: Any, now: Any) -> None:
    assert checked({name: now}, {name: now}) == ""
    message = rf"{tmp_path} was trained with {name}={before}, not {now}: give another --output".replace("[", r"\[")
    with pytest.raises(UserError, match=message):
        checked({name: before}, {name: now}, limits_may_differ=True)


def test_shares_of_time_may_differ_where_that_is_said(checked: Any) -> None:
    before: dict[str, Any] = {"trainer.max_minutes": 0.5, "trainer.max_epochs": 5, "threads": 1}
    now = {"trainer.max_minutes": 5.0, "trainer.max_epochs": None, "threads": 2}
    said = "another share of time (trainer.max_epochs=5, trainer.max_minutes=0.5)"
    assert said in checked(before, now, limits_may_differ=True)
    before["trainer.max_epochs"] = None
    with pytest.raises(UserError, match=r"trained with trainer\.max_minutes=0\.5, not 5\.0"):
        checked(before, now)
    assert checked({"threads": 1, "data.cache_dir": "a"}, {"threads": None, "data.cache_dir": "b"}) == ""
