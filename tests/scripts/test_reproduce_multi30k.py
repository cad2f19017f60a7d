"""The chain of trainings, with a small corpus and runs of a few updates: it ends, and goes on where it was killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.runs import ROOT, TINY
from tests.scripts.running import SCRIPTS
from tests.template_pairs import template_pairs

SMALL = [each for each in TINY if not each.startswith("data.")]
SMALL += ["model.readout=linear", "trainer.max_steps=4", "trainer.max_epochs=null", "trainer.validate_every_steps=2"]


def start(cwd: Path, *keys: str) -> subprocess.Popen[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    line = [str(SCRIPTS / "reproduce_multi30k.sh"), "corpus", "out", *SMALL, *keys]
    environment |= {"TEACHERS": "1", "SEEDS": "1", "SOURCE": "en", "TARGET": "de", "NEIGHBORS": "4"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
    return subprocess.Popen(line, cwd=cwd, env=environment, **pipes)  # type: ignore[call-overload]


@pytest.mark.slow
def test_the_chain(tmp_path: Path) -> None:
    """Some minutes: `python -m pytest -m slow tests/scripts/test_reproduce_multi30k.py`.

    The folder has letters that Hydra reads in quotes only, and is not there yet.
    """
    tmp_path = tmp_path / "Korpora (neu), größer"
    tmp_path.mkdir()
    pairs = template_pairs(260)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name, part in (("train", pairs[:200]), ("val", pairs[200:230]), ("test_2016_flickr", pairs[230:])):
        for side, language in enumerate(("en", "de")):
            (corpus / f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in part), encoding="utf-8")
    killed = start(tmp_path)
    limit = time.monotonic() + 900
    while not (tmp_path / "out" / "backward-1" / "checkpoints" / "last").exists():
        assert time.monotonic() < limit
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    kept = tmp_path / "out" / "plain" / "evaluation" / "test" / "metrics.json"
    before = kept.stat().st_mtime_ns
    going_on = start(tmp_path)
    told, _ = going_on.communicate(timeout=1800)
    assert going_on.returncode == 0, told
    assert kept.stat().st_mtime_ns == before
    assert (tmp_path / "out" / "diversified" / "train.de").read_text().count("\n") > 200
    last = tmp_path / "out" / "risk-1"
    assert "baseline" in json.dumps(json.loads((last / "evaluation" / "test" / "metrics.json").read_text()))
    for run, start_of_it in (("student-1", "forward-1"), ("risk-1", "student-1")):
        configured = (tmp_path / "out" / run / "config.yaml").read_text(encoding="utf-8")
        assert f"initialize_from: {tmp_path / 'out' / start_of_it}\n" in configured
    scored = {float(path.name.split("-")[1]) for path in (last / "evaluation").glob("validation-*")}
    assert scored == {0.6, 0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.5}
    assert (last / "datastore" / "pairs.jsonl").read_text().count("\n") == 200


def test_runs_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "out" / "plain").mkdir(parents=True)
    (tmp_path / "out" / "settings").write_text("of another call\n")
    refused = start(tmp_path, "seed=2")
    told, _ = refused.communicate(timeout=60)
    assert (refused.returncode, told.splitlines()) == (
        2,
        [
            f"error: {tmp_path / 'out'} has runs of other settings: give these again, or another OUTPUT",
            "of another call",
        ],
    )


@pytest.mark.parametrize(("name", "value"), [("SEEDS", "2x"), ("TEACHERS", "0"), ("NEIGHBORS", "-3")])
def test_a_number_that_is_none_is_refused(tmp_path: Path, name: str, value: str) -> None:
    line = [str(SCRIPTS / "reproduce_multi30k.sh"), "corpus", "out"]
    done = subprocess.run(line, cwd=tmp_path, env={**os.environ, name: value}, capture_output=True, text=True)
    least = 0 if name == "NEIGHBORS" else 1
    message = f"error: {name} is '{value}': give a whole number from {least}\n"
    assert (done.returncode, done.stderr) == (2, message)
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_can_be_mended_in_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    mistaken = start(tmp_path, "model.hiden_size=2")
    told, _ = mistaken.communicate(timeout=120)
    assert (mistaken.returncode, "did you mean 'model.hidden_size'" in told) == (2, True), told
    mended = start(tmp_path)
    told, _ = mended.communicate(timeout=120)
    assert (mended.returncode, told.count("\n")) == (2, 1), told
    assert told.startswith("error: data.train.source: no such file")


def test_without_folders_it_says_how_it_is_called(tmp_path: Path) -> None:
    done = subprocess.run([str(SCRIPTS / "reproduce_multi30k.sh")], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "scripts/reproduce_multi30k.sh CORPUS OUTPUT" in done.stdout
    assert list(tmp_path.iterdir()) == []
