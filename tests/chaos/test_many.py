"""Trainings of many processes on one machine: each does its share, and the scores are those of one process."""

import json
import socket
import time
from pathlib import Path

import pytest

from tests.processes import Zygote

SETTINGS = ["data.grammar.validation_size=150", "data.grammar.test_size=150", "search.batch_size=2", "batch.size=60"]
SETTINGS += ["data.grammar.train_size=3000", "trainer.max_steps=3", "model.embedding_size=8", "model.hidden_size=16"]


@pytest.mark.chaos
@pytest.mark.parametrize("number", [8, 64])
def test_many_processes_have_the_scores_of_one(
    zygote: Zygote, tmp_path: Path, tiny_options: list[str], number: int
) -> None:
    """A minute for 8 on two cores: `python -m pytest -m chaos -s tests/chaos/test_many.py`; 64 take memory to match."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        common = {"WORLD_SIZE": str(number), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
    ranks = [common | {"RANK": rank, "LOCAL_RANK": rank} for rank in map(str, range(number))]
    begun = time.monotonic()
    options = ["run_dir=run", *tiny_options, *SETTINGS]
    started = [zygote.start("train", *options, cwd=tmp_path, environment=rank) for rank in ranks]
    ended = [zygote.wait(each, seconds=1200) for each in started]
    assert [each.status for each in ended] == [0] * number, ended[0]
    print(f"{number} processes: {time.monotonic() - begun:.0f} s")
    scoring = ["checkpoint=run", "output=alone", "search.batch_size=2", "threads=1", "device=cpu"]
    alone = zygote.run("evaluate", *scoring, cwd=tmp_path, seconds=600)
    assert alone.status == 0, alone
    together = json.loads((tmp_path / "run" / "evaluation" / "test" / "metrics.json").read_text())
    one = json.loads((tmp_path / "alone" / "metrics.json").read_text())
    timed = {"seconds": 0.0, "sentences_per_second": 0.0}
    assert together | timed == one | timed
    records = map(json.loads, (tmp_path / "run" / "metrics.jsonl").open())
    (validation,) = (each for each in records if each["event"] == "validation")
    scoring = [*scoring, "split=validation", "output=validation", "search.beam_size=1"]
    assert zygote.run("evaluate", *scoring, cwd=tmp_path, seconds=600).status == 0
    greedy = json.loads((tmp_path / "validation" / "metrics.json").read_text())
    assert {name: validation[name] for name in ("bleu", "chrf")} == {name: greedy[name] for name in ("bleu", "chrf")}
