"""Means over a window of updates, counted by hand."""

import math

import pytest
import torch

from nmt.training.distributed import SingleProcess
from nmt.training.meter import Meter


def noted(meter: Meter, tokens: int, norm: float, **sums: float) -> None:
    meter.add(**{name: torch.tensor(value) for name, value in sums.items()})
    meter.end_update(tokens, 0.1, torch.tensor(norm))


def test_means_are_a_token_and_begin_anew() -> None:
    meter = Meter(torch.device("cpu"))
    noted(meter, 4, 1.0, loss=8.0)
    meter.add(loss=torch.tensor(1.0), alignment_loss=torch.tensor(3.0))
    noted(meter, 6, 2.0, loss=11.0)
    found = meter.read()
    assert found["loss"] == pytest.approx(2.0)
    assert found["alignment_loss"] == pytest.approx(0.3)
    assert found["perplexity"] == pytest.approx(math.exp(2.0))
    assert (found["gradient_norm"], found["learning_rate"], found["skipped"]) == (2.0, 0.1, 0.0)
    noted(meter, 5, 1.0, loss=5.0)
    assert meter.read()["loss"] == 1.0


@pytest.mark.parametrize("norm", [math.nan, math.inf])
def test_skipped_updates_are_counted_and_left_out_of_the_means(norm: float) -> None:
    meter = Meter(torch.device("cpu"))
    noted(meter, 4, 1.0, loss=8.0)
    noted(meter, 100, norm, loss=math.nan, alignment_loss=math.inf)
    assert meter.skipped_in_a_row == 1
    found = meter.read()
    assert (found["loss"], found["alignment_loss"], found["skipped"]) == (2.0, 0.0, 1.0)
    noted(meter, 100, norm, loss=math.nan)
    assert meter.skipped_in_a_row == 2  # over windows
    assert math.isnan(meter.read()["loss"])
    noted(meter, 4, 1.0, loss=8.0)
    assert meter.skipped_in_a_row == 0
    assert meter.read()["loss"] == 2.0


def test_the_time_of_a_pause_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    meter = Meter(torch.device("cpu"))
    now = 102.0
    noted(meter, 6, 1.0, loss=8.0)
    with meter.paused():
        now = 150.0
    now = 151.0
    noted(meter, 6, 1.0, loss=8.0)
    assert meter.read()["tokens_per_second"] == 12 / 3


def test_terms_that_begin_or_end_when_a_run_goes_on_are_means_of_their_own_updates() -> None:
    guided, plain = {"loss": 20.0, "alignment_loss": 10.0}, {"loss": 20.0}
    for before, now in ((plain, guided), (guided, plain), (guided, guided)):
        meter, continued = Meter(torch.device("cpu")), Meter(torch.device("cpu"))
        noted(meter, 10, 1.0, **before)
        continued.load_state_dict(meter.state_dict())
        noted(continued, 10, 1.0, **now)
        noted(continued, 10, 1.0, **now)
        measured = continued.measure()
        assert {name: measured[name] for name in guided if name in measured} == {
            name: value / 10 for name, value in now.items()
        }


def test_a_window_goes_on_where_it_was_saved() -> None:
    """Two updates, or one and after a resume another: the same report, but for the speed."""
    whole, first, second = (Meter(torch.device("cpu")) for _ in range(3))
    for meter, losses in ((whole, [3.0, 5.0]), (first, [3.0])):
        for loss in losses:
            meter.add(loss=torch.tensor(loss), alignment_loss=torch.tensor(loss / 2))
            meter.end_update(2, 0.1, torch.tensor(1.0))
    second.load_state_dict(first.state_dict())
    second.add(loss=torch.tensor(5.0), alignment_loss=torch.tensor(2.5))
    second.end_update(2, 0.1, torch.tensor(1.0))
    expected, found = whole.read(), second.read()
    del expected["tokens_per_second"], found["tokens_per_second"]
    assert found == expected
    assert found["loss"] == 2.0
    assert found["alignment_loss"] == 1.0


def test_the_sums_of_a_resumed_window_are_counted_once_over_the_ranks() -> None:
    """What was saved are the sums of all ranks: rank 0 continues them, the others begin at zero."""
    saved = Meter(torch.device("cpu"))
    noted(saved, 4, 1.0, loss=8.0)
    sums = []
    for rank in (0, 1):
        processes = SingleProcess()
        processes.rank = rank
        meter = Meter(torch.device("cpu"), processes)
        meter.load_state_dict(saved.state_dict())
        sums.append(meter.read()["loss"])
    assert sums == [2.0, 0.0]
