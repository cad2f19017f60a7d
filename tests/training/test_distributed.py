"""Training in several processes: collective calls, and updates that equal those of one process."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from nmt.training.distributed import SINGLE_PROCESS, ProcessGroup, no_sync, process_group
from nmt.training.torchrun_env import RankEnvironment
from tests.runs import ROOT, Completed
from tests.training import rank

TASKS = (
    "primitives",
    "encoded",
    "updates",
    "consistent",
    "sampled",
    "unused",
    "skipped",
    "clocks",
    "interrupted",
    "resumed",
    "straight",
    "broken",
)

Results = list[dict[str, Any]]
Ended = tuple[Results, list[Completed]]


@pytest.fixture(scope="module")
def ended(together: Callable[..., list[Completed]], tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Results of both ranks by task, and how they ended; all tasks share one start, which takes seconds."""
    folder = tmp_path_factory.mktemp("ranks")
    done = together("tests.training.rank", ",".join(TASKS), str(folder), cwd=ROOT)
    files = [folder / f"rank-{number}.pt" for number in (0, 1)]
    assert all(file.exists() for file in files), [each.stderr for each in done]
    return [torch.load(file, weights_only=True) for file in files], done


@pytest.fixture
def results(ended: Ended) -> Callable[[str], Results]:
    """Results of both ranks in a task."""
    return lambda task: [each[task] for each in ended[0]]


def close(left: Any, right: Any, tolerance: float = 0.0) -> None:
    torch.testing.assert_close(left, right, rtol=tolerance, atol=tolerance)


def test_collective_calls_return_the_same_on_all_ranks(results: Callable[[str], Results]) -> None:
    for number, found in enumerate(results("primitives")):
        assert found["sum"] == 3.5
        assert found["tensors"][0].tolist() == [[3.0] * 3] * 2
        assert found["tensors"][1].tolist() == [0, 3, 6, 9, 12]
        assert found["tensors"][2].item() == 2.0
        assert [weight.tolist() for weight in found["weights"]] == [[0.0] * 2] * 3
        assert found["gathered"] == [{"rank": 0}, {"rank": 1}]
        assert found["on_rank_zero"] == "rank 0"
        assert found["on_all_ranks"] == number
        assert found["rank_zero_first"] == [0, 1][: number + 1]
        assert found["spread"] == [(0, 0), (1, 1), (0, 4), (1, 9), (0, 16)]


def test_each_rank_encodes_a_share_of_a_corpus(results: Callable[[str], Results]) -> None:
    """Half of 2,501 pairs each, and nothing the second time; one file is left, and its digest."""
    assert [found["encoded here"] for found in results("encoded")] == [1_250, 1_251]
    for found in results("encoded"):
        assert [found["source"], found["target"]] == found["expected"]
        assert found["files"] == [".arrow", ".sha256"]


def test_the_clock_is_that_of_rank_zero_and_stands_between_collective_calls(results: Callable[[str], Results]) -> None:
    (first, then), others = (found["clocks"] for found in results("primitives"))
    assert first == then
    assert others == (first, then)


def test_a_gradient_that_one_rank_lacks_is_that_of_the_others_and_one_that_all_lack_stays_none(
    results: Callable[[str], Results],
) -> None:
    """Two backward passes, the first without synchronization; `data_parallel` averages over the two ranks."""
    for number, found in enumerate(results("primitives")):
        assert found["local gradients"] == [[1.0, 2.0] if number == 0 else None, None, [3.0, 4.0]]
        assert found["averaged gradients"] == [[1.0, 2.0], None, [6.0, 8.0]]


def test_what_one_rank_raises_all_raise(results: Callable[[str], Results]) -> None:
    found = results("primitives")
    assert [each["error of rank 0"] for each in found] == ["UserError: process 0 misses a file"] * 2
    assert [each["error of rank 1"] for each in found] == ["UserError: process 1 misses a file"] * 2
    assert [each["error in a share"] for each in found] == ["SystemExit: 1", "ZeroDivisionError: division by zero"]
    assert [each["defect of rank 0"] for each in found] == ["ZeroDivisionError: division by zero", "SystemExit: 1"]


def test_ranks_have_different_random_numbers(results: Callable[[str], Results]) -> None:
    first, second = (found["random"] for found in results("primitives"))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("task", ["updates", "consistent"])
def test_an_update_of_all_is_that_of_one_process_on_their_batches(results: Callable[[str], Results], task: str) -> None:
    """Weights, moving average and reports, with guided alignment, risk and accumulation, from the weights of rank 0."""
    settings: dict[str, dict[str, Any]]
    settings = {"updates": {"minimum_risk": rank.RISK}, "consistent": {"consistency": 3.0}}
    alone = rank.trainer(SINGLE_PROCESS, max_steps=10, **settings[task])
    if task == "consistent":
        alone.model.register_forward_hook(rank.unlike)
    before = {name: weight.clone() for name, weight in alone.model.state_dict().items()}
    for update in itertools.islice(rank.batches_of_all(2, accumulate=2), rank.UPDATES):
        alone.update([rank.taught(*batches) for batches in update])
        # As far into the epoch as they are, for the weight of guided alignment.
        alone.progress.epochs = 2 * alone.progress.step / len(rank.loader(0, 2))
    report = alone.meter.read()
    assert max((before[name] - weight).abs().max() for name, weight in alone.model.state_dict().items()) > 0.01
    for found in results(task):
        assert (found["step"], found["epochs"]) == (alone.progress.step, alone.progress.epochs)
        close(found["weights"], dict(alone.model.state_dict()), 1e-12)
        close(found["average"], dict(alone.averaged().state_dict()), 1e-12)
        assert found["report"] == pytest.approx({name: report[name] for name in found["report"]}, rel=1e-6)
        assert {"loss", "alignment_loss", "gradient_norm"} <= found["report"].keys()
        assert (found["report"].get("divergence", 0.0) > 0.01) is (task == "consistent")
        assert (found["report"].get("risk", 0.0) > 0.01) is (task == "updates")


def test_the_baseline_is_that_of_all_draws(results: Callable[[str], Results]) -> None:
    joined = rank.reinforced(SINGLE_PROCESS, rank.DRAWS)
    found = results("updates")
    assert all(each["baseline"] == pytest.approx(joined["baseline"]) for each in found)
    close(torch.cat([each["by log_prob"] for each in found]), joined["by log_prob"], 1e-6)


@pytest.mark.parametrize(
    "task", ["updates", "consistent", "sampled", "unused", "skipped", "clocks", "interrupted", "resumed", "straight"]
)
def test_ranks_never_drift_apart(results: Callable[[str], Results], task: str) -> None:
    """They stop at the same update, though their clocks and their signals come at different moments."""
    first, second = results(task)
    assert first["step"] == second["step"] > 1
    assert (first["epochs"], first["best"]) == (second["epochs"], second["best"])
    for name in ("weights", "average"):
        close(first[name], second[name])


def test_a_parameter_that_no_rank_uses_is_left_alone(results: Callable[[str], Results]) -> None:
    for found in results("unused"):
        same = {name for name, weight in found["weights"].items() if torch.equal(weight, found["before"][name])}
        assert same == {"decoder.attention.key.weight"}


def test_an_update_whose_gradient_is_not_finite_on_one_rank_is_skipped_on_all(
    results: Callable[[str], Results],
) -> None:
    for found in results("skipped"):
        assert found["in a row"] == 1
        close(found["weights"], found["before"])


def test_an_interrupt_of_one_stops_all_and_training_goes_on_exactly(results: Callable[[str], Results]) -> None:
    """With dropout, whose masks differ between ranks."""
    for stopped, resumed, straight in zip(*map(results, ("interrupted", "resumed", "straight")), strict=True):
        assert (stopped["step"], resumed["step"]) == (3, 8)
        close(resumed["weights"], straight["weights"])
        close(resumed["average"], straight["average"])


def test_a_defect_of_one_ends_all(ended: Ended) -> None:
    """Without torchrun, which would kill the others; the time limit of the fixture shows that nothing hangs."""
    first, second = ended[1]
    assert (first.returncode, second.returncode) == (1, 1)
    assert "ZeroDivisionError" not in first.stderr
    assert "ZeroDivisionError: division by zero\n" in second.stderr


def test_a_single_process_wraps_and_sends_nothing() -> None:
    tensor, module = torch.arange(3.0), torch.nn.Linear(2, 2)
    with process_group(RankEnvironment(), "cpu") as alone:
        assert isinstance(alone, ProcessGroup)
        assert alone is SINGLE_PROCESS
    assert alone.all_reduce_(tensor) is tensor
    assert tensor.tolist() == [0.0, 1.0, 2.0]
    assert alone.data_parallel(module) is module
    with no_sync(module):
        assert alone.sum_over_ranks(3.5) == 3.5
    assert alone.all_gather("a") == ["a"]
    assert alone.on_rank_zero(max, 1, 2) == alone.on_all_ranks(max, 1, 2) == 2
    assert alone.clock() < alone.clock()
