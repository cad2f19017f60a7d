"""Defects found in commit a3b8a77, shown by the commands alone: each of these tests fails there.

`NMT_TESTED_CHECKOUT=FOLDER python -m pytest tests/chaos` tries the commands of another checkout. Two starts in the same
second, flips, hostile files and full disks are in the other modules of this folder.
"""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.chaos.whole import Whole, weights
from tests.processes import Ended, Zygote

MORE = ["trainer.max_steps=14", "trainer.validate_every_steps=7"]


@pytest.fixture
def run(whole: Whole, tmp_path: Path) -> Path:
    """A copy of the run."""
    return Path(shutil.copytree(whole.folder, tmp_path / "run"))


def translate(zygote: Zygote, place: Path, *arguments: str, **limits: Any) -> Ended:
    return zygote.run("translate", "--checkpoint", "run", "--device", "cpu", *arguments, cwd=place, **limits)


def test_a_start_while_another_trains(zygote: Zygote, whole: Whole, tmp_path: Path) -> None:
    first = zygote.start("train", "run_dir=run", *whole.options, cwd=tmp_path)
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        time.sleep(0.01)
    second = zygote.run("train", "run_dir=run", *whole.options, cwd=tmp_path)
    assert zygote.wait(first).status == 0
    assert weights(tmp_path / "run") == whole.weights
    assert second.is_refusal, second


@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_cached_tables_cut_short(zygote: Zygote, whole: Whole, tmp_path: Path, kept: float) -> None:
    shutil.copytree(whole.folder.parent / "cache", tmp_path / "cache")
    for table in (tmp_path / "cache").rglob("*.arrow"):
        os.truncate(table, int(table.stat().st_size * kept))
    options = [each for each in whole.options if not each.startswith("data.cache_dir=")]
    done = zygote.run("train", "run_dir=run", *options, "data.cache_dir=cache", cwd=tmp_path)
    assert (done.status, done.has_traceback) == (0, False), done.errors
    assert weights(tmp_path / "run") == whole.weights


def exponent(values: np.ndarray) -> None:
    values.view(np.uint32).flat[0] ^= 1 << 30


def zeros(values: np.ndarray) -> None:
    values[: len(values) // 2] = 0


def not_a_number(values: np.ndarray) -> None:
    values.flat[0] = np.nan


@pytest.mark.parametrize("damage", [exponent, zeros, not_a_number])
def test_damaged_weights(zygote: Zygote, run: Path, tmp_path: Path, damage: Any) -> None:
    for path in run.rglob("model.safetensors"):
        values = load_file(path)
        for name in values:
            damage(values[name])
        save_file(values, path)
    found = translate(zygote, tmp_path, "He sleeps.")
    assert found.is_refusal, found
    assert found.output == ""


def test_a_configuration_cut_between_two_groups(zygote: Zygote, run: Path, tmp_path: Path) -> None:
    for path in run.rglob("config.yaml"):
        path.write_text(path.read_text().partition("\nsearch:")[0] + "\n")
    found = translate(zygote, tmp_path, "He sleeps.")
    assert found.is_refusal, found


def change_moments(path: Path, value: float) -> None:
    state = torch.load(path, weights_only=True)

    def change(part: Any) -> None:
        for name, each in part.items() if isinstance(part, dict) else enumerate(part):
            if isinstance(each, dict | list):
                change(each)
            elif name == "exp_avg":
                each.view(-1)[0] = value

    change(state)
    torch.save(state, path)


@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_damaged_moments(zygote: Zygote, whole: Whole, run: Path, tmp_path: Path, value: float) -> None:
    change_moments(run / "checkpoints" / "last" / "training_state.pt", value)
    if np.isnan(value):  # then without a manifest, too
        (run / "checkpoints" / "last" / "manifest.json").unlink(missing_ok=True)
    done = zygote.run("train", "run_dir=run", *whole.options, *MORE, cwd=tmp_path)
    assert done.is_refusal, done
    assert "training_state.pt" in done.errors


def test_a_short_line_does_not_wait_for_long_ones(zygote: Zygote, run: Path, tmp_path: Path) -> None:
    """Of 2,000 words; the process is ended after 10 s, done or not."""
    text = "He sleeps.\n" + "the sister of Luc sees me . " * 285 + "\n"
    ended = translate(zygote, tmp_path, "--beam-size", "1", stdin=text.encode() * 20, kill_after=10)
    assert ended.output.count("\n") >= 1, ended


def test_outputs_on_a_full_disk(zygote: Zygote, run: Path, tmp_path: Path) -> None:
    text = b"He sleeps in the garden.\n" * 400
    for place in ("given", "/dev/full"):
        found = translate(zygote, tmp_path, "--output", place, stdin=text, largest_file=2_000)
        assert found.is_refusal, found
        assert not [path.name for path in tmp_path.iterdir() if path.name not in ("run", "changes")]
    arguments = ["checkpoint=run", "output_dir=evaluation", "device=cpu"]
    found = zygote.run("evaluate", *arguments, cwd=tmp_path, largest_file=2_000)
    assert found.is_refusal, found


@pytest.mark.parametrize("line", [b"\xff\xfe\n", b'{"event": "train", "step": 1e999}\n'])
def test_damaged_metrics(zygote: Zygote, whole: Whole, run: Path, tmp_path: Path, line: bytes) -> None:
    path = run / "metrics.jsonl"
    path.write_bytes(line + path.read_bytes())
    done = zygote.run("train", "run_dir=run", *whole.options, *MORE, cwd=tmp_path)
    assert not done.has_traceback, done.errors
    assert done.status == 0 or done.is_refusal, done


def test_a_sweep_whose_first_job_fails(zygote: Zygote, whole: Whole, tmp_path: Path) -> None:
    options = ["-m", "run_dir=sweep", "trainer.initialize_from=nowhere,null", *whole.options]
    done = zygote.run("train", *options, cwd=tmp_path)
    assert done.is_refusal, done
    assert "error: job 0 (trainer.initialize_from=nowhere): no checkpoint at nowhere" in done.errors
    assert weights(tmp_path / "sweep" / "1") == whole.weights


def test_an_empty_name_of_a_run(zygote: Zygote, whole: Whole, tmp_path: Path) -> None:
    done = zygote.run("train", "run_dir=", *whole.options, cwd=tmp_path)
    assert done.is_refusal, done
    assert not (tmp_path / "checkpoints").exists()


def test_what_is_logged_around_a_resume(zygote: Zygote, whole: Whole, tmp_path: Path) -> None:
    """It is stopped within a window of three updates, whose loss is logged, and after TensorBoard's first text."""
    for steps in (4, 12):
        done = zygote.run("train", "run_dir=run", *whole.options, f"trainer.max_steps={steps}", cwd=tmp_path)
        assert done.status == 0, done.errors
    assert weights(tmp_path / "run") == whole.weights
    losses, expected = (
        [(each["step"], each["loss"]) for each in map(json.loads, path.open()) if each["event"] == "train"]
        for path in (tmp_path / "run" / "metrics.jsonl", whole.folder / "metrics.jsonl")
    )
    assert losses == expected
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    tags = [tag for tag in events.Tags()["tensors"] if "hyper" not in tag]
    assert tags
    for tag in tags:
        steps_told = [each.step for each in events.Tensors(tag)]
        assert len(steps_told) == len(set(steps_told)), tag


def test_what_killed_processes_left(zygote: Zygote, whole: Whole, tmp_path: Path) -> None:
    options = [each for each in whole.options if not each.startswith("data.cache_dir=")]
    options = ["run_dir=run", *options, "data.cache_dir=cache"]
    for moment in (3, 5, 8):
        done = zygote.run("train", *options, cwd=tmp_path, part="cache", kill_at=moment)
        assert done.status == -9, done
    assert [path for path in (tmp_path / "cache").rglob(".*") if path.is_dir()]
    assert zygote.run("train", *options, cwd=tmp_path).status == 0
    assert not [path for path in (tmp_path / "cache").rglob(".*") if path.is_dir()]
    assert not list(tmp_path.rglob("*.unfinished"))


def test_directions_and_escapes_do_not_reach_the_terminal(zygote: Zygote, run: Path, tmp_path: Path) -> None:
    found = translate(zygote, tmp_path, "--show-alignment", "He \u202esl\x1b[2Jeeps\u202c.")
    assert found.status == 0, found
    assert "\N{REPLACEMENT CHARACTER}" in found.errors  # drawn, with something in their place
    assert not {"\x1b", "\u202e"} & set(found.errors)
