"""Killed at any moment, a training that is started again ends with the same weights.

The long form, 200 kills: `python -m pytest -m chaos tests/chaos`.
"""

import json
import os
import random
import shutil
import signal
import socket
import time
from pathlib import Path

import pytest

from nmt.models.checkpoint import load_checkpoint, resolve_device
from tests.chaos.whole import Whole, weights
from tests.processes import Started, Zygote


def check_kill(zygote: Zygote, whole: Whole, place: Path, **kill: float) -> bool:
    """Kill a training, look at what it leaves, and go on; return whether it was killed before its end."""
    run = place / "run"
    killed = zygote.run("train", "run_dir=run", *whole.options, cwd=place, part="run/checkpoints", **kill)
    if any((run / "checkpoints" / name).exists() for name in ("best", "last", ".best.old", ".last.old")):
        load_checkpoint(run, resolve_device("cpu"))  # readers need no repair
    again = zygote.run("train", "run_dir=run", *whole.options, cwd=place)
    assert again.status == 0, again.errors
    assert not again.has_traceback
    assert weights(run) == whole.weights
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"best", "last"}
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [each["step"] for each in records if each["event"] == "validation"]
    assert steps == [2, 4, 6, 8, 10, 12]
    shutil.rmtree(run)
    return killed.status in (-signal.SIGKILL, -signal.SIGALRM)


def changes(whole: Whole) -> int:
    """Return how often the undisturbed run has changed files in its folder of checkpoints."""
    return int((whole.folder.parent / "changes").read_text())


def test_killed_while_it_saves(zygote: Zygote, whole: Whole, tmp_path: Path) -> None:
    """The short form: three of the changes that `test_killed_at_every_change_of_a_file` has."""
    total = changes(whole)
    assert total >= 100
    for n in (3, total // 2, total - 2):
        assert check_kill(zygote, whole, tmp_path, kill_at=n), n


@pytest.mark.chaos
def test_killed_at_every_change_of_a_file(zygote: Zygote, whole: Whole, tmp_path: Path) -> None:
    """About five minutes: `python -m pytest -m chaos tests/chaos/test_kills.py`."""
    total = changes(whole)
    killed = sum(check_kill(zygote, whole, tmp_path, kill_at=n) for n in range(1, total + 1))
    assert killed == total
    print(f"{killed} kills while saving")


@pytest.mark.chaos
def test_killed_at_a_random_moment(zygote: Zygote, whole: Whole, tmp_path: Path) -> None:
    """About five minutes: `python -m pytest -m chaos tests/chaos/test_kills.py`."""
    started = time.monotonic()
    zygote.run("train", "run_dir=timed", *whole.options, cwd=tmp_path)
    duration = time.monotonic() - started
    generator = random.Random(1)
    moments = [generator.uniform(0.05, duration) for _ in range(120)]
    killed = sum(check_kill(zygote, whole, tmp_path, kill_after=moment) for moment in moments)
    assert killed >= 100
    print(f"{killed} kills at random moments of {duration:.1f} s")


def start_two(zygote: Zygote, whole: Whole, place: Path) -> list[Started]:
    """Start a training of two processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [{**common, "RANK": rank, "LOCAL_RANK": rank} for rank in ("0", "1")]
    options = ["run_dir=run", *whole.options]
    return [zygote.start("train", *options, cwd=place, environment=rank) for rank in ranks]


@pytest.mark.chaos
@pytest.mark.parametrize("victim", [0, 1])
def test_two_processes_killed_at_a_random_moment(zygote: Zygote, whole: Whole, tmp_path: Path, victim: int) -> None:
    """About two minutes. torchrun ends the process that is left; here it is killed, too."""
    started = time.monotonic()
    assert [zygote.wait(each).status for each in start_two(zygote, whole, tmp_path)] == [0, 0]
    duration = time.monotonic() - started
    expected = weights(tmp_path / "run")
    generator = random.Random(victim)
    for _ in range(10):
        shutil.rmtree(tmp_path / "run")
        both = start_two(zygote, whole, tmp_path)
        time.sleep(generator.uniform(0.1, duration))
        for each in (both[victim], both[1 - victim]):
            os.kill(each.child, signal.SIGKILL)
            time.sleep(generator.uniform(0, 0.3))
        for each in both:
            zygote.wait(each)
        again = [zygote.wait(each) for each in start_two(zygote, whole, tmp_path)]
        assert [each.status for each in again] == [0, 0], again
        assert weights(tmp_path / "run") == expected
