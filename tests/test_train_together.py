"""`torchrun --nproc-per-node=2 -m nmt.train`: one run of several processes, as its user sees it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from nmt.fast.accelerate import accelerate
from nmt.models.checkpoint import load_checkpoint
from nmt.training.distributed import SINGLE_PROCESS
from nmt.training.prepare import prepare
from nmt.training.validation import Validator
from tests.failing import CASES
from tests.runs import QUIET, ROOT, records, training_state, wait_for

STATEFUL = ("tokenizer.sampling=0.2", "model.dropout=0.3", "trainer.ema_decay=0.9", "trainer.accumulate=2")
ENDLESS = ("trainer.max_steps=1000000", "trainer.validate_every_steps=1000000")


def test_an_interrupted_run_of_two_can_be_continued(
    together: Callable[..., Any], tiny_options: list[str], tmp_path: Path
) -> None:
    """One folder, one log, and no update twice; the name of the folder has the time of day in it."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    process = subprocess.Popen(
        [*launcher, "-m", "nmt.train", *tiny_options, *QUIET, *STATEFUL, *ENDLESS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    metrics = tmp_path / "outputs" / "latest" / "metrics.jsonl"
    wait_for(lambda: metrics.exists() or process.poll() is not None, seconds=120)
    os.killpg(process.pid, signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert errors.count("interrupted\n") == 1
    assert errors.count("update 1 ") == 1
    assert "nmt/training" not in errors  # no traceback of ours beside the launcher's
    run = metrics.resolve().parent
    assert {path.resolve() for path in (tmp_path / "outputs").rglob("train.log")} == {run / "train.log"}
    stopped = training_state(run)["progress"]["step"]
    assert [record["step"] for record in records(run, "train")] == list(range(1, stopped + 1))

    more = (f"trainer.max_steps={stopped + 2}", "trainer.max_epochs=null", ENDLESS[1])
    done = together("nmt.train", f"run_dir={run}", *tiny_options, *QUIET, *STATEFUL, *more, cwd=tmp_path)
    assert [each.returncode for each in done] == [0, 0], done
    assert [each.stdout for each in done] == ["", ""]
    assert f"/checkpoints/last at update {stopped}\n" in done[0].stderr
    assert done[1].stderr == ""
    assert [record["step"] for record in records(run, "train")] == list(range(1, stopped + 3))
    assert [record["step"] for record in records(run, "validation")] == [stopped + 2]
    assert len(list((run / "tensorboard").iterdir())) == 2  # one file a start
    assert [path.name for path in tmp_path.iterdir()] == ["outputs"]  # the other process's own folder is tmp_path


@pytest.mark.parametrize(
    "number", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(4, marks=pytest.mark.slow)]
)
def test_the_scores_of_several_processes_are_those_of_one(
    together: Callable[..., Any], call: Callable[..., Any], tiny_options: list[str], tmp_path: Path, number: int
) -> None:
    """To the last digit, of validations and of the test split: each process reads some of the batches."""
    options = [*tiny_options, "search.batch_size=2", "data.grammar.test_size=13", "threads=1", "model.hidden_size=24"]
    options += ["run_dir=run", "trainer.max_steps=6", "trainer.num_samples=0", "trainer.ema_decay=0.9", "batch.size=60"]
    done = together("tests.counting", *options, cwd=tmp_path, number=number)
    assert [each.returncode for each in done] == [0] * number, done
    shares = [int(count) for each in done for count in re.findall(r"^translated (\d+) sentences$", each.stderr, re.M)]
    assert len(shares) == number
    assert min(shares) > 0
    assert [each.stdout.count("sentences of test ·") for each in done] == [1, *[0] * (number - 1)]
    run = tmp_path / "run"
    (record,) = (each for each in map(json.loads, (run / "metrics.jsonl").open()) if each["event"] == "validation")
    checkpoint = load_checkpoint(run)
    prepared = prepare(checkpoint.config, run / "checkpoints" / "best", SINGLE_PROCESS)
    validator = Validator(prepared.validation, checkpoint.tokenizers, checkpoint.config, torch.device("cpu"))
    alone = validator(accelerate(checkpoint.model))
    assert {name: record[name] for name in alone.metrics} == alone.metrics
    assert {"loss", "bleu", "aer", "attention_entropy"} <= alone.metrics.keys()
    settings = ("search.batch_size=2", "num_heatmaps=0", "threads=1")
    again = call("evaluate", "checkpoint=run", "output=again", *settings, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    folders = run / "evaluation" / "test", tmp_path / "again"
    first, second = (json.loads((folder / "metrics.json").read_text()) for folder in folders)
    timed = {"seconds": 0.0, "sentences_per_second": 0.0}
    assert first | timed == second | timed
    for name in ("hypotheses.txt", "alignments.pharaoh"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_a_folder_that_cannot_be_made_is_told_once_and_ends_all(
    together: Callable[..., Any], tiny_options: list[str], tmp_path: Path
) -> None:
    (tmp_path / "run" / "evaluation").mkdir(parents=True)
    (tmp_path / "run" / "evaluation" / "test").touch()  # it is no folder
    limits = ("trainer.max_steps=1", "trainer.num_samples=0")
    done = together("nmt.train", *tiny_options, *limits, "run_dir=run", cwd=tmp_path)
    assert [each.returncode for each in done] == [2, 2], done
    assert done[0].stderr.splitlines()[-1].startswith("error: cannot write ")
    assert "Traceback" not in done[0].stderr
    assert done[1].stderr == ""
    assert (tmp_path / "run" / "checkpoints" / "last").is_dir()


ENDED = "error: another process has ended; see its message\n"


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            "memory",
            "error: memory does not suffice for a batch, and several processes cannot halve it: lower batch.size",
        ),
        ("disk", "error: cannot write run/metrics.jsonl: No space left on device; free some space"),
        pytest.param("defect", "ZeroDivisionError: a defect\n", marks=pytest.mark.slow),
        ("killed", ""),
    ],
)
def test_an_error_of_one_rank_is_told_by_it_and_ends_all(
    together: Callable[..., Any], tiny_options: list[str], tmp_path: Path, case: str, message: str
) -> None:
    """What fails is in no collective call: the others meet a connection that is closed.

    A defect: `python -m pytest -m slow tests/test_train_together.py`.
    """
    done = together("tests.failing", case, *tiny_options, *QUIET, "run_dir=run", "trainer.max_steps=6", cwd=tmp_path)
    failed, other = done[int(CASES[case])], done[1 - int(CASES[case])]
    assert failed.returncode == {"defect": 1, "killed": -signal.SIGKILL}.get(case, 2), failed.stderr
    assert message in failed.stderr
    assert failed.stderr.count("error: ") == (case in ("memory", "disk"))
    assert ("Traceback" in failed.stderr) == (case == "defect")
    assert other.returncode == 2
    assert other.stderr.endswith(ENDED)
    assert other.stderr.count("error: ") == 1
    assert "Traceback" not in other.stderr


@pytest.mark.slow
def test_a_training_that_diverges_is_told_once(
    together: Callable[..., Any], tiny_options: list[str], tmp_path: Path
) -> None:
    """All ranks find it, each for itself: `python -m pytest -m slow tests/test_train_together.py`."""
    options = [*tiny_options, *QUIET, "run_dir=run", "trainer.max_steps=12", "trainer.label_smoothing=0"]
    done = together("tests.failing", "diverges", *options, cwd=tmp_path)
    assert [each.returncode for each in done] == [2, 2], done
    assert done[0].stderr.count("error: training has diverged") == 1
    assert [each.stderr.count("error: ") for each in done] == [1, 0]


def test_text_that_is_too_long_for_training_is_told_once(
    together: Callable[..., Any], tiny_options: list[str], tmp_path: Path
) -> None:
    options = [*tiny_options, "run_dir=run", "trainer.max_steps=1", "batch.max_length=1"]
    done = together("nmt.train", *options, cwd=tmp_path)
    assert [each.returncode for each in done] == [2, 2], done
    assert done[0].stderr.count("error: no training pair is left") == 1
    assert done[1].stderr == ""


def test_a_mistake_of_the_user_is_told_once_and_ends_all(
    together: Callable[..., Any], tiny_options: list[str], tmp_path: Path
) -> None:
    text = [f"data.{split}.{side}=missing" for split in ("train", "validation") for side in ("source", "target")]
    first, second = together("nmt.train", *tiny_options, "trainer.max_steps=1", "data=text", *text, cwd=tmp_path)
    assert (first.returncode, second.returncode) == (2, 2)
    assert first.stderr.startswith("error: data.train.source: no such file: missing")
    assert first.stderr.count("\n") == 1
    assert (second.stdout, second.stderr) == ("", "")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("sweep", ["-m", "--multirun", "--multi", "hydra.mode=MULTIRUN"])
@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_sweep_of_several_processes_is_refused(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, rank: str, sweep: str, tmp_path: Path
) -> None:
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("nmt.cli.EXIT_DELAY", 0)
    done = call("train", sweep, "seed=1,2")
    assert done.returncode == 2
    told = "error: a sweep (-m) uses one process per job: start it without torchrun, or train a single setting\n"
    assert done.stderr == (told if rank == "0" else "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("port", "message"),
    [
        ("abc", "MASTER_PORT=abc do not identify this process"),
        ("{taken}", "the 2 processes cannot meet at 127.0.0.1:"),
    ],
)
def test_processes_that_cannot_meet_say_so(
    call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, port: str, message: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        place["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # which the command sets, to be unset after the test
        for name, value in {**place, "MASTER_PORT": port.format(taken=taken.getsockname()[1])}.items():
            monkeypatch.setenv(name, value)
        done = call("train", "trainer.max_steps=1")
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_two_processes_go_on_exactly_where_they_stopped(
    together: Callable[..., Any], tiny_options: list[str], tmp_path: Path
) -> None:
    for run, *limits in (("straight", 8), ("parted", 4, 8)):
        for limit in limits:
            options = (*tiny_options, *QUIET, *STATEFUL, f"run_dir={run}", f"trainer.max_steps={limit}")
            done = together("nmt.train", *options, cwd=tmp_path)
            assert [each.returncode for each in done] == [0, 0], done
    weights = [load_file(tmp_path / run / "checkpoints/last/model.safetensors") for run in ("straight", "parted")]
    torch.testing.assert_close(*weights, rtol=0, atol=0)
    average = [training_state(tmp_path / run)["average"] for run in ("straight", "parted")]
    torch.testing.assert_close(*average, rtol=0, atol=0)
