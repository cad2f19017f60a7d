"""Schedules by their formulas, the moving average by hand."""

import math

import pytest
import torch
from torch import nn

from nmt.config.schema import AttentionConfig, ModelConfig, OptimizerConfig, ScheduleConfig
from nmt.errors import UserError
from nmt.models.build import build_model
from nmt.training.optimizer import Schedule, build_average, build_optimizer, clipped_step, load_optimizer_state


def rates(config: ScheduleConfig, steps: int, peak: float = 2.0) -> list[float]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))])
    schedule = Schedule(optimizer, config, peak)
    found = [schedule.set(step, step / steps) for step in range(1, steps + 1)]
    assert optimizer.param_groups[0]["lr"] == found[-1]
    return found


def test_constant_after_linear_warmup() -> None:
    assert rates(ScheduleConfig(kind="constant", warmup_steps=4), 6) == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]


def test_inverse_square_root() -> None:
    found = rates(ScheduleConfig(kind="inverse_sqrt", warmup_steps=4), 16)
    assert found[3] == 2.0
    assert found[15] == pytest.approx(1.0)


def test_cosine_ends_at_the_final_factor() -> None:
    found = rates(ScheduleConfig(kind="cosine", warmup_steps=0, final_factor=0.1), 10)
    assert found[-1] == pytest.approx(0.2)
    assert found[4] == pytest.approx(2.0 * (0.1 + 0.9 * 0.5))
    assert found == sorted(found, reverse=True)


def test_plateau_reduces_after_patience_and_remembers() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))])
    config = ScheduleConfig(kind="plateau", warmup_steps=0, factor=0.5, patience=1)
    schedule = Schedule(optimizer, config, 1.0)
    for improved, expected in [
        (True, 1.0),
        (False, 1.0),
        (False, 0.5),
        (False, 0.5),
        (True, 0.5),
        (False, 0.5),
        (False, 0.25),
    ]:
        schedule.validated(improved)
        assert schedule.set(1, 0.0) == expected
    resumed = Schedule(optimizer, config, 1.0)
    resumed.load_state_dict(schedule.state_dict())
    assert resumed.set(1, 0.0) == 0.25
    for kind in ("constant", "cosine", "inverse_sqrt"):
        other = Schedule(optimizer, ScheduleConfig(kind=kind, warmup_steps=0), 1.0)
        other.load_state_dict(schedule.state_dict())
        assert other.set(1, 0.0) == 1.0, kind


def test_only_matrices_decay() -> None:
    model = nn.Linear(2, 2)
    optimizer = build_optimizer(model, OptimizerConfig(weight_decay=0.1))
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert (decay[id(model.weight)], decay[id(model.bias)]) == (0.1, 0.0)


def test_average_ramps_up() -> None:
    model = nn.Linear(1, 1, bias=False)
    average = build_average(model, 0.5)
    nn.init.constant_(model.weight, 1.0)
    average.update_parameters(model)  # the random weights of the beginning count for nothing
    expected = 1.0
    for count, value in enumerate([3.0, 7.0, 7.0], start=1):
        nn.init.constant_(model.weight, value)
        average.update_parameters(model)
        keep = min(0.5, (1 + count) / (10 + count))
        expected = keep * expected + (1 - keep) * value
        (weight,) = average.module.parameters()
        assert weight.item() == pytest.approx(expected)
    assert not math.isclose(expected, 7.0)


@pytest.mark.parametrize("clip_norm", [1e-2, 1.0, 1e3, math.inf])
@pytest.mark.parametrize("kind", ["fused", "plain", "double"])
def test_a_clipped_step_is_clipping_and_a_step(kind: str, clip_norm: float) -> None:
    models = [nn.Linear(3, 2, dtype=torch.float64 if kind == "double" else None) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    config = OptimizerConfig(learning_rate=0.1, weight_decay=0.1)
    optimizers: list[torch.optim.Optimizer] = [build_optimizer(model, config) for model in models]
    if kind == "plain":
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for step in range(5):
        x = torch.full((4, 3), 1.0 + step, dtype=models[0].weight.dtype)
        for optimizer, model in zip(optimizers, models, strict=True):
            optimizer.zero_grad()
            model(x).square().sum().backward()
        found = clipped_step(optimizers[0], clip_norm)
        expected = torch.nn.utils.clip_grad_norm_(models[1].parameters(), clip_norm)
        optimizers[1].step()
        assert found.item() == pytest.approx(expected.item(), rel=1e-6)
        for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["fused", "plain"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(kind: str, bad: float) -> None:
    models = [nn.Linear(3, 2) for _ in range(3)]
    for model, gradients in zip(models, ([], [1.0, 2.0], [1.0, bad, 2.0]), strict=True):
        model.load_state_dict(models[0].state_dict())
        optimizer: torch.optim.Optimizer = build_optimizer(model, OptimizerConfig(learning_rate=0.1, weight_decay=0.1))
        if kind == "plain":
            optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for gradient in gradients:
            optimizer.zero_grad()
            model(torch.ones(1, 3)).sum().backward()
            assert model.weight.grad is not None
            model.weight.grad[0, 0] = gradient
            assert bool(clipped_step(optimizer, 1.0).isfinite()) == math.isfinite(gradient)
    assert not torch.equal(models[1].weight, models[0].weight)
    for one, other in zip(models[1].parameters(), models[2].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_energies_and_biases_do_not_decay() -> None:
    config = ModelConfig(embedding_size=8, hidden_size=16, attention=AttentionConfig(coverage="fertility"))
    model = build_model(config, 9, 9, joint=True)
    optimizer = build_optimizer(model, OptimizerConfig(weight_decay=0.1))
    (decayed,) = [group["params"] for group in optimizer.param_groups if group["weight_decay"]]
    names = {name for name, each in model.named_parameters() if any(each is other for other in decayed)}
    assert {name for name in names if "energy" in name or "fertility" in name or "bias" in name} == set()
    assert {"decoder.attention.score.query.weight", "output.weight"} <= names


def test_moments_that_are_not_finite_are_named() -> None:
    weights = nn.Linear(2, 2)
    optimizer = build_optimizer(weights, OptimizerConfig())
    weights(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    load_optimizer_state(build_optimizer(nn.Linear(2, 2), OptimizerConfig()), state)
    state["state"][1]["exp_avg_sq"][0] = math.nan
    with pytest.raises(UserError, match="the optimizer's exp_avg_sq is not finite"):
        load_optimizer_state(build_optimizer(nn.Linear(2, 2), OptimizerConfig()), state)
