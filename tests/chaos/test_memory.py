"""Too little memory: the system refuses addresses above a limit, so that allocations fail as they do on a full GPU."""

import shutil
from pathlib import Path

import pytest

from tests.processes import Zygote

# Batches of which one takes about a gigabyte.
LARGE = ["data.grammar.train_size=3000", "batch.size=60000", "model.hidden_size=256", "model.embedding_size=128"]
LARGE += ["trainer.validate_every_steps=2", "trainer.evaluate=false", "model.fast=off"]


@pytest.mark.chaos
def test_training_under_a_limit(zygote: Zygote, tmp_path: Path, tiny_options: list[str]) -> None:
    """About two minutes: `python -m pytest -m chaos -s tests/chaos/test_memory.py`.

    With little memory there is one line; with more, batches are halved; with enough, nothing is told. The run that goes
    on has learned its subwords: where sentencepiece cannot start a thread, C++ ends the process.
    """
    verdicts = []
    options = [each for each in tiny_options if not each.startswith("data.grammar.train_size")]
    begun = zygote.run("train", "run_dir=begun", *options, *LARGE, "trainer.max_steps=1", cwd=tmp_path, seconds=300)
    assert begun.status == 0, begun
    for megabytes in (800, 1_200, 1_600, 2_000, 2_500, 3_000, 4_000, 6_000, 10_000, 16_000):
        run = shutil.copytree(tmp_path / "begun", tmp_path / f"{megabytes}")
        arguments = [f"run_dir={run}", *options, *LARGE, "trainer.max_steps=3"]
        done = zygote.run("train", *arguments, cwd=tmp_path, memory=megabytes * 10**6, seconds=300)
        assert done.is_refusal or (done.status == 0 and not done.has_traceback), f"{megabytes}: {done}"
        verdicts.append(done.status == 0 and ("halved" if "such batches are halved" in done.errors else "whole"))
        print(megabytes, verdicts[-1], done.errors.splitlines()[-1])
    assert verdicts[0] is False
    assert "halved" in verdicts
    assert verdicts[-1] == "whole"
