"""When to validate, when to stop, what is best."""

import math

import pytest

from nmt.config.schema import TrainerConfig
from nmt.training.progress import Progress, fraction_done, out_of_patience, seconds_left, validation_due


def test_the_nearest_limit_counts():
    progress = Progress(step=30, epochs=1.5)
    assert fraction_done(progress, TrainerConfig()) == 0.0
    assert fraction_done(progress, TrainerConfig(max_steps=60)) == 0.5
    assert fraction_done(progress, TrainerConfig(max_steps=60, max_epochs=2)) == 0.75
    progress.seconds_before = 240.0
    assert fraction_done(progress, TrainerConfig(max_steps=60, max_minutes=5)) == pytest.approx(0.8, abs=1e-3)


def test_the_time_left_is_that_at_the_speed_of_this_process():
    """Here a run of 100 updates in 1,000 seconds is resumed by a process that makes one update per second."""
    now = 50.0
    progress = Progress(clock=lambda: now)
    progress.load_state_dict(Progress(step=100, epochs=2.0, seconds_before=1_000.0).state_dict())
    limited = TrainerConfig(max_steps=300, max_epochs=3, max_minutes=60)
    assert seconds_left(progress, limited) is None
    progress.step, progress.epochs, now = 120, 2.2, 70.0
    assert seconds_left(progress, TrainerConfig()) is None
    assert seconds_left(progress, TrainerConfig(max_steps=300)) == pytest.approx(180)
    assert seconds_left(progress, TrainerConfig(max_epochs=3)) == pytest.approx(80)
    assert seconds_left(progress, TrainerConfig(max_minutes=60)) == pytest.approx(3_600 - 1_020, abs=0.1)
    assert seconds_left(progress, limited) == pytest.approx(80)
    assert seconds_left(progress, TrainerConfig(max_steps=110)) == 0.0


@pytest.mark.parametrize(
    ("metric", "values", "best"),
    [("bleu", [1, 3, 2], [True, True, False]), ("loss", [3, 1, 2, 0.5], [True, True, False, True])],
)
def test_best_follows_the_metric(metric, values, best):
    progress = Progress()
    assert [progress.improves(metric, {"loss": 1.0, metric: value}) for value in values] == best


def test_of_equal_values_the_one_with_the_lower_loss_is_better():
    """BLEU of one-word sentences is always 0; the first checkpoint would be the best for ever."""
    progress = Progress()
    losses = [(0.0, 5.0), (0.0, 4.0), (0.0, 4.0), (0.0, math.nan), (0.0, 3.0), (2.0, 9.0), (2.0, 8.0), (1.0, 1.0)]
    found = [progress.improves("bleu", {"bleu": value, "loss": loss}) for value, loss in losses]
    assert found == [True, True, False, False, True, True, True, False]
    assert (progress.best, progress.best_loss, progress.stale) == (2.0, 8.0, 1)
    resumed = Progress()
    state = progress.state_dict()
    resumed.load_state_dict({name: value for name, value in state.items() if name != "best_loss"})  # earlier versions
    assert not resumed.improves("bleu", {"bleu": 2.0, "loss": 1.0})


def test_patience_counts_validations_without_improvement():
    progress = Progress()
    for value, stop in [(1.0, False), (0.9, False), (0.8, True)]:
        progress.improves("bleu", {"bleu": value, "loss": 1.0})
        assert out_of_patience(progress, TrainerConfig(patience=2)) is stop
    assert not out_of_patience(progress, TrainerConfig())


def test_validation_is_due_by_steps_or_epochs():
    assert validation_due(Progress(step=20, epochs=0.3), TrainerConfig(validate_every_steps=10))
    assert not validation_due(Progress(step=21, epochs=5), TrainerConfig(validate_every_steps=10))
    assert validation_due(Progress(step=21, epochs=1.0), TrainerConfig())
    assert not validation_due(Progress(step=21, epochs=1.5, validated_epoch=1), TrainerConfig())
    assert not validation_due(Progress(step=21, epochs=2.9, validated_epoch=1), TrainerConfig(validate_every_epochs=2))
    assert validation_due(Progress(step=21, epochs=3.0, validated_epoch=1), TrainerConfig(validate_every_epochs=2))


def test_validation_is_due_by_minutes():
    config = TrainerConfig(validate_every_minutes=2)
    assert not validation_due(Progress(step=5, epochs=3.0, seconds_before=119.0), config)
    assert validation_due(Progress(step=5, seconds_before=120.0), config)
    assert not validation_due(Progress(step=5, seconds_before=230.0, validated_seconds=115.0), config)


def test_the_time_since_a_validation_goes_on_in_a_resumed_run() -> None:
    """So a run of sessions that are shorter than the interval is validated, too."""
    config = TrainerConfig(validate_every_minutes=15)
    due = []
    state = Progress(validated_seconds=0.0).state_dict()
    for session in range(1, 5):
        progress = Progress()
        progress.load_state_dict(state)
        progress.seconds_before = 60.0 * 7 * session
        due.append(validation_due(progress, config))
        if due[-1]:
            progress.validated_seconds = progress.seconds
        state = progress.state_dict()
    assert due == [False, False, True, False]
    earlier = {name: value for name, value in state.items() if name != "validated_seconds"}
    progress.load_state_dict(earlier)  # versions before have not saved it
    assert not validation_due(progress, config)
    with pytest.raises(KeyError, match="step"):
        progress.load_state_dict({name: value for name, value in state.items() if name != "step"})


def test_state_survives():
    progress = Progress(step=3, epochs=0.5, seconds_before=100.0)
    progress.improves("bleu", {"bleu": 12.0, "loss": 2.5})
    resumed = Progress()
    resumed.load_state_dict(progress.state_dict())
    assert (resumed.step, resumed.best, resumed.best_loss) == (3, 12.0, 2.5)
    assert resumed.seconds == pytest.approx(100.0, abs=1.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("metric", ["bleu", "loss"])
def test_what_is_not_finite_is_never_the_best(metric: str, value: float):
    progress = Progress()
    assert not progress.improves(metric, {"loss": 1.0, metric: value})
    assert progress.improves(metric, {"loss": 1.0, metric: 1.0})
    assert not progress.improves(metric, {"loss": 1.0, metric: value})
    assert (progress.best, progress.stale) == (1.0, 1)


def test_time_is_that_of_the_clock_it_is_given():
    now = 50.0
    progress = Progress(seconds_before=10.0, clock=lambda: now)
    now = 53.0
    assert progress.seconds == 13.0
    resumed = Progress(clock=lambda: now)
    resumed.load_state_dict(progress.state_dict())
    now = 54.0
    assert resumed.seconds == 14.0
