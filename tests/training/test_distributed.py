"""Training in several processes: what they say to each other, and that their updates are those of one."""

import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.training.distributed import SINGLE_PROCESS, Processes, add_up_gradients, buckets, join
from nmt.training.torchrun_env import Launch
from tests.training import rank

ROOT = Path(__file__).parents[2]
TASKS = ("primitives", "updates", "clocks", "interrupted", "resumed", "straight", "broken")

Completed = subprocess.CompletedProcess[str]
Results = list[dict[str, Any]]
Ended = tuple[Results, list[Completed]]


@pytest.fixture(scope="module")
def ended(together: Callable[..., list[Completed]], tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """What both processes found, by task, and how they ended; all tasks in one start, which takes seconds."""
    folder = tmp_path_factory.mktemp("ranks")
    done = together("tests.training.rank", ",".join(TASKS), str(folder), cwd=ROOT)
    files = [folder / f"rank-{number}.pt" for number in (0, 1)]
    assert all(file.exists() for file in files), [each.stderr for each in done]
    return [torch.load(file, weights_only=True) for file in files], done


@pytest.fixture
def results(ended: Ended) -> Callable[[str], Results]:
    """What both processes found in a task."""
    return lambda task: [each[task] for each in ended[0]]


def close(left: Any, right: Any, tolerance: float = 0.0) -> None:
    torch.testing.assert_close(left, right, rtol=tolerance, atol=tolerance)


def test_what_is_said_reaches_all(results: Callable[[str], Results]) -> None:
    for number, told in enumerate(results("primitives")):
        assert told["totals"] == [3.0, 0.5]
        assert told["sums"][0].tolist() == [[3.0] * 3] * 2
        assert told["sums"][1].tolist() == [0, 3, 6, 9, 12]
        assert told["sums"][2].item() == 2.0
        assert told["copied"].tolist() == [0.0] * 3
        assert told["gathered"] == [{"rank": 0}, {"rank": 1}]
        assert told["by_first"] == "said by 0"
        assert told["each"] == number


def test_the_clock_is_that_of_the_first_and_stands_between_meetings(results: Callable[[str], Results]) -> None:
    (first, then), others = (told["clocks"] for told in results("primitives"))
    assert first == then
    assert others == (first, then)


def test_a_gradient_that_one_process_lacks_is_that_of_the_others(results: Callable[[str], Results]) -> None:
    for told in results("primitives"):
        first, second, third = told["gradients"]
        assert first.tolist() == [1.0, 2.0]
        assert second is None
        assert third.tolist() == [6.0, 8.0]


def test_what_one_process_raises_all_raise(results: Callable[[str], Results]) -> None:
    told = results("primitives")
    assert [each["error of the first"] for each in told] == ["UserError: process 0 misses a file"] * 2
    assert [each["error of the second"] for each in told] == ["UserError: process 1 misses a file"] * 2
    assert [each["defect of the first"] for each in told] == ["ZeroDivisionError: division by zero", "SystemExit: 1"]


def test_each_process_draws_at_random_for_itself(results: Callable[[str], Results]) -> None:
    first, second = (told["random"] for told in results("primitives"))
    assert not torch.equal(first, second)


def test_an_update_of_all_is_that_of_one_process_on_their_batches(results: Callable[[str], Results]) -> None:
    """Weights, moving average, reports: with guided alignment, accumulation, and the first's weights to begin with."""
    alone = rank.trainer(SINGLE_PROCESS, max_steps=10)
    before = {name: weight.clone() for name, weight in alone.model.state_dict().items()}
    for update in itertools.islice(rank.batches_of_all(2, accumulate=2), rank.UPDATES):
        alone.update([rank.taught(*batches) for batches in update])
        # As far into the epoch as they are, for the weight of the guidance.
        alone.progress.epochs = 2 * alone.progress.step / len(rank.loader(0, 2))
    report = alone.meter.read()
    assert max((before[name] - weight).abs().max() for name, weight in alone.model.state_dict().items()) > 0.01
    for told in results("updates"):
        assert (told["step"], told["epochs"]) == (alone.progress.step, alone.progress.epochs)
        close(told["weights"], dict(alone.model.state_dict()), 1e-12)
        close(told["average"], dict(alone.averaged().state_dict()), 1e-12)
        assert told["report"] == pytest.approx({name: report[name] for name in told["report"]}, rel=1e-6)
        assert {"loss", "alignment_loss", "gradient_norm"} <= told["report"].keys()


def test_the_baseline_is_that_of_all_draws(results: Callable[[str], Results]) -> None:
    joined = rank.reinforced(SINGLE_PROCESS, rank.DRAWS)
    told = results("updates")
    assert all(each["baseline"] == pytest.approx(joined["baseline"]) for each in told)
    close(torch.cat([each["by log_prob"] for each in told]), joined["by log_prob"], 1e-6)


@pytest.mark.parametrize("task", ["updates", "clocks", "interrupted", "resumed", "straight"])
def test_processes_never_drift_apart(results: Callable[[str], Results], task: str) -> None:
    """They stop at the same update, though their clocks and their signals come at different moments."""
    first, second = results(task)
    assert first["step"] == second["step"] > 1
    assert (first["epochs"], first["best"]) == (second["epochs"], second["best"])
    for name in ("weights", "average"):
        close(first[name], second[name])


def test_an_interrupt_of_one_stops_all_and_training_goes_on_exactly(results: Callable[[str], Results]) -> None:
    """Dropout in, which each draws for itself."""
    for stopped, resumed, straight in zip(*map(results, ("interrupted", "resumed", "straight")), strict=True):
        assert (stopped["step"], resumed["step"]) == (3, 8)
        close(resumed["weights"], straight["weights"])
        close(resumed["average"], straight["average"])


def test_a_defect_of_one_ends_all(ended: Ended) -> None:
    """Without a launcher that would end the others; that nothing hangs is the time limit's to say."""
    first, second = ended[1]
    assert (first.returncode, second.returncode) == (1, 1)
    assert "ZeroDivisionError" not in first.stderr
    assert second.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_alone_nothing_is_said() -> None:
    tensor = torch.arange(3.0)
    with join(Launch(), "cpu") as alone:
        assert isinstance(alone, Processes)
        assert alone is SINGLE_PROCESS
    alone.add_up([tensor])
    alone.copy_from_first([tensor])
    assert tensor.tolist() == [0.0, 1.0, 2.0]
    assert alone.total(3, 0.5) == [3, 0.5]
    assert alone.gather("a") == ["a"]
    assert alone.by_first(max)(1, 2) == alone.each(max)(1, 2) == 2
    assert alone.clock() < alone.clock()
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    parameters[0].grad = torch.ones(2)
    add_up_gradients(parameters, alone)
    assert [each.grad is None for each in parameters] == [False, True]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([], []), ([3], [[3]]), ([1, 2, 3, 4, 9, 1], [[1, 2], [3], [4], [9], [1]]), ([2, 2], [[2, 2]])],
)
def test_buckets_hold_so_many_numbers_at_most(sizes: list[int], expected: list[list[int]]) -> None:
    found = buckets([torch.zeros(size) for size in sizes], 4)
    assert [[tensor.numel() for tensor in bucket] for bucket in found] == expected
