"""Kernel regression against Nadaraya and Watson, written down."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.scripts.running import PNG, study, table


def test_kernel_regression(tmp_path: Path) -> None:
    done = study("study_kernel_regression", "--quick", "--points", "30", "--bandwidths", "0.1", "1", cwd=tmp_path)
    output = tmp_path / "outputs/study_kernel_regression_quick"
    rows = table(output)
    columns = ("normalizer", "bandwidth", "learned", "held_out_error", "curve_error", "attention_entropy")
    assert tuple(rows[0]) == (*columns, "points_seen")
    assert [(row["normalizer"], row["learned"]) for row in rows] == [
        *[("softmax", "no")] * 2,
        *((name, "yes") for name in ("softmax", "entmax15", "sparsemax")),
    ]
    assert (output / "figure.png").read_bytes().startswith(PNG)
    assert "held out error" in done.stdout


def nadaraya_watson(x: float, keys: np.ndarray, values: np.ndarray, bandwidth: float) -> float:
    kernel = [np.exp(-((x - key) ** 2) / (2 * bandwidth**2)) for key in keys]
    return sum(k * value for k, value in zip(kernel, values, strict=True)) / sum(kernel)


def test_attention_is_nadaraya_watson(script: Callable[[str], Any]) -> None:
    module = script("study_kernel_regression")
    points = module.draw_points(12, 0.3, seed=1)
    attention, bandwidth = module.attention_of("softmax", 0.4), 0.4
    assert module.bandwidth_of(attention) == pytest.approx(bandwidth)
    queries = torch.linspace(-1, 7, 5)
    expected, weights = module.estimate(attention, queries[None], points.x[None], points.y[None])
    x, y = points.x.double().numpy(), points.y.double().numpy()
    assert expected[0].tolist() == pytest.approx(
        [nadaraya_watson(q, x, y, bandwidth) for q in queries.tolist()], rel=1e-4
    )
    assert weights.shape == (1, 5, 12)
    others = [nadaraya_watson(x[i], np.delete(x, i), np.delete(y, i), bandwidth) for i in range(12)]
    error = module.held_out_error(attention, points).item()
    assert error == pytest.approx(float(np.mean((np.array(others) - y) ** 2)), rel=1e-4)


def test_sparsemax_makes_the_kernel_of_epanechnikov(script: Callable[[str], Any]) -> None:
    module = script("study_kernel_regression")
    keys = torch.linspace(0, 1, 11)[None]
    _, weights = module.estimate(module.attention_of("sparsemax", 0.4), torch.tensor([[0.5]]), keys, keys)
    parabola = weights[0, 0].detach()
    inside = parabola > 0
    assert inside.sum() == 5
    # A parabola with its top at the query: second differences are equal.
    steps = np.diff(parabola[inside].numpy(), n=2)
    assert steps == pytest.approx(np.full_like(steps, -(0.1**2) / 0.4**2), rel=1e-3)


def test_the_learned_bandwidth_is_the_best_of_a_grid(script: Callable[[str], Any]) -> None:
    module = script("study_kernel_regression")
    points = module.draw_points(40, 0.3, seed=2)
    attention = module.attention_of("softmax", 1.0)
    module.learn(attention, points, 200)
    errors = [
        module.held_out_error(module.attention_of("softmax", s), points).item() for s in np.geomspace(0.03, 3, 60)
    ]
    assert module.held_out_error(attention, points).item() <= min(errors) * 1.001
