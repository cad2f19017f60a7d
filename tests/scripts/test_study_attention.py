"""The comparison of attention mechanisms: its table, and which compositions it trains."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.config.schema import TrainConfig
from nmt.errors import UserError
from tests.scripts.running import COST, PNG, SENTENCES, STEPS, table

ATTENTION = ("score", "normalizer", "window", "bleu", "aer", "attention_entropy", "exact_zeros", "tokens_per_second")


def test_attention_writes_a_row_a_composition(attention_study: Path) -> None:
    output = attention_study / "outputs/study_attention"
    rows = table(output)
    assert tuple(rows[0]) == (*ATTENTION, *COST)
    assert [(row["score"], row["normalizer"], row["window"]) for row in rows] == [
        ("additive", "sparsemax", "global"),
        ("dot", "sparsemax", "global"),
    ]
    additive, dot = rows
    size, queries = 64, 64
    assert int(additive["parameters"]) - int(dot["parameters"]) == size * (queries + size + 2)
    assert (additive["updates"], dot["updates"]) == ("6", "6")
    assert all(0 < float(row["exact_zeros"]) < 1 and float(row["tokens_per_second"]) > 0 for row in rows)
    assert (output / "figure.png").read_bytes().startswith(PNG)
    scores = json.loads((output / "runs/dot-sparsemax-global/evaluation/test/metrics.json").read_text())
    assert float(dot["aer"]) == pytest.approx(scores["aer"], rel=1e-5)


def test_attention_goes_on_where_it_stopped(
    attention_study: Path, tiny_options: list[str], call: Callable[..., int]
) -> None:
    output = attention_study / "outputs/study_attention"
    weights = output / "runs/additive-sparsemax-global/checkpoints/best/model.safetensors"
    before, stamp = table(output), weights.stat().st_mtime_ns
    chosen = ("--scores", "additive", "linear", "--normalizers", "sparsemax", "--windows", "global", "--workers", "1")
    assert call("study_attention", *tiny_options, *SENTENCES, *STEPS, *chosen, cwd=attention_study) == 0
    assert weights.stat().st_mtime_ns == stamp
    after = table(output)
    assert [row["score"] for row in after] == ["additive", "dot", "linear"]
    assert after[:2] == before


def test_attention_of_another_seed_is_not_that_of_the_first(
    attention_study: Path, tiny_options: list[str], call: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    """Not even where the runs asked for are new: the table would hold both."""
    before = {file: file.stat().st_mtime_ns for file in attention_study.rglob("*")}
    for score in ("additive", "gaussian"):
        chosen = ("--scores", score, "--normalizers", "sparsemax", "--windows", "global", "--workers", "1")
        line = ("study_attention", *tiny_options, *SENTENCES, "--steps", "6", "--seed", "4", *chosen)
        assert call(*line, cwd=attention_study) == 2
        output, error = capfd.readouterr()
        run = "outputs/study_attention/runs/additive-sparsemax-global"
        assert f"error: {run} was trained with seed=3, not 4: give another --output" in error
        assert output == ""
    assert {file: file.stat().st_mtime_ns for file in attention_study.rglob("*")} == before


def choices(**given: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"scores": None, "normalizers": None, "windows": None, "quick": False, **given})


def test_all_compositions_are_chosen_once(script: Callable[[str], Any]) -> None:
    module = script("study_attention")
    compositions = module.selected_compositions(choices())
    assert len(set(compositions)) == len(compositions) == 8 * 4 * 3
    assert {each.score for each in module.selected_compositions(choices(scores=["concat"]))} == {"concat"}
    quick = module.selected_compositions(choices(quick=True))
    assert set(quick) < set(compositions)
    assert len(quick) == 8 + 3 + 2
    assert [{each[part] for each in quick} for part in range(3)] == [
        {each[part] for each in compositions} for part in range(3)
    ]


@pytest.mark.parametrize("part", ["score", "normalizer", "window"])
def test_the_parts_of_attention_are_no_overrides(
    part: str, call: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert call("study_attention", f"model.attention.{part}=none") == 2
    assert f"model.attention.{part} is chosen by --{part}s here" in capfd.readouterr().err


def test_compositions_that_cannot_be_are_left_out(
    script: Callable[[str], Any], capfd: pytest.CaptureFixture[str]
) -> None:
    module, base = script("study_attention"), TrainConfig()
    base.model.attention.coverage = "accumulated"
    compositions = module.selected_compositions(choices(normalizers=["softmax"], windows=["global"]))
    assert [each.score for each in module.valid_compositions(base, compositions)] == ["additive"]
    assert "left out dot x softmax x global: model.attention.coverage=accumulated" in capfd.readouterr().err
    with pytest.raises(UserError, match="no composition is left"):
        module.valid_compositions(base, module.selected_compositions(choices(scores=["dot"])))
