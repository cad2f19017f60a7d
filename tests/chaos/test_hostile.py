"""Hostile files: one line, status 2, nothing run from them, and no gigabytes or minutes spent on them."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.hostile import CHECKPOINT, TEXT, TRAINING_STATE
from tests.chaos.whole import Whole
from tests.processes import Zygote

SECONDS = 30
MEMORY = 12 * 2**30  # of addresses, of which libraries take most


@pytest.mark.parametrize("name", [*CHECKPOINT, *TRAINING_STATE])
def test_a_hostile_checkpoint(zygote: Zygote, whole: Whole, tmp_path: Path, name: str) -> None:
    run = shutil.copytree(whole.folder, tmp_path / "run")
    file, change = (CHECKPOINT | TRAINING_STATE)[name]
    for checkpoint in (run / "checkpoints").iterdir():
        path = checkpoint / file
        (checkpoint / "manifest.json").unlink(missing_ok=True)
        path.write_bytes(change(path.read_bytes() if path.exists() else b""))
    options: dict[str, Any] = {"cwd": tmp_path, "seconds": SECONDS, "memory": MEMORY}
    if name in CHECKPOINT:
        found = zygote.run("translate", "--checkpoint", "run", "--device", "cpu", "He sleeps.", **options)
        assert found.is_refusal, found
        assert found.output == ""
    more = ["trainer.max_steps=14", "trainer.validate_every_steps=7"]
    found = zygote.run("train", "run_dir=run", *whole.options, *more, **options)
    assert found.is_refusal, found
    assert not list(tmp_path.rglob("attacked"))


@pytest.mark.parametrize("name", TEXT)
def test_hostile_text(zygote: Zygote, whole: Whole, tmp_path: Path, name: str) -> None:
    (tmp_path / "good").write_text("a b\n" * 100)
    (tmp_path / "bad").write_bytes(TEXT[name])
    files = [f"data.{split}.{side}=good" for split in ("train", "validation") for side in ("source", "target")]
    options = [each for each in whole.options if not each.startswith("data.")]
    found = zygote.run(
        "train", "run_dir=run", *options, "data=text", *files, "data.train.source=bad", cwd=tmp_path, seconds=SECONDS
    )
    assert found.is_refusal, found
    assert not (tmp_path / "run" / "checkpoints").exists()
