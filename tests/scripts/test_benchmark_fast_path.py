"""The speed of the fast path: its rows, medians and choice of compositions. No test asserts a time."""

import csv
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.scripts.running import study


def test_a_row_a_round(tmp_path: Path) -> None:
    chosen = ("--decoders", "luong", "fixed_context", "--cells", "gru", "--output", "speeds.csv")
    done = study("benchmark_fast_path", "--quick", "threads=1", "data.cache_dir=cache", *chosen, cwd=tmp_path)
    with (tmp_path / "speeds.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rates = ("training_auto", "training_off", "search_auto", "search_off")
    assert tuple(rows[0]) == ("decoder", "cell", "score", "round", *rates)
    assert [tuple(row.values())[:4] for row in rows] == [
        (decoder, "gru", score, number)
        for decoder, score in (("luong", "additive"), ("luong", "general"), ("fixed_context", "-"))
        for number in ("1", "2")
    ]
    assert all(float(row[name]) > 0 for row in rows for name in rates)
    assert "search ratio" in done.stdout
    assert "3 of 3: fixed_context gru -" in done.stderr


def test_all_compositions_are_measured_once(script: Callable[[str], Any]) -> None:
    module = script("benchmark_fast_path")
    compositions = module.select(module.DECODERS, module.CELLS, module.SCORES)
    assert len(set(compositions)) == len(compositions) == 5 * 2 * 2 + 2
    for composition in compositions:
        config = composition.configure("off", ["model.hidden_size=48"])
        assert (config.model.cell, config.model.hidden_size, config.model.fast) == (composition.cell, 48, "off")
        assert composition.decoder.startswith(config.model.decoder)
        assert composition.score in (config.model.attention.score, "-")
        assert config.model.input_feeding == (composition.decoder != "luong_without_feeding")


def test_medians_and_their_ratios(script: Callable[[str], Any]) -> None:
    names = {"decoder": "luong", "cell": "gru", "score": "general"}
    rates = [(30.0, 10.0), (20.0, 20.0), (10.0, 16.0)]
    rows = [
        {**names, "round": number, "training_auto": auto, "training_off": off, "search_auto": off, "search_off": auto}
        for number, (auto, off) in enumerate(rates)
    ]
    (summary,) = script("benchmark_fast_path").summarize(rows)
    auto, off = (statistics.median(side) for side in zip(*rates, strict=True))
    assert summary == {
        **names,
        "training_auto": auto,
        "training_off": off,
        "training_ratio": auto / off,
        "search_auto": off,
        "search_off": auto,
        "search_ratio": off / auto,
    }


@pytest.mark.parametrize("override", ["model=luong", "model.fast=off", "model.cell=gru", "+model.attention.score=dot"])
def test_axes_of_the_table_cannot_be_overridden(
    override: str, call: Callable[..., int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert call("benchmark_fast_path", override) == 2
    name = override.partition("=")[0].lstrip("+")
    assert capfd.readouterr().err == (
        f"error: {override}: {name} varies in the table; choose by --decoders, --cells and --scores\n"
    )
