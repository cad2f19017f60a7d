"""`python -m nmt.doctor`: what is well, what is damaged, and what to do."""

import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.data.tables import digest_file, digest_of
from nmt.models.checkpoint import replace_folder, retired
from nmt.models.manifest import write_manifest
from nmt.training.lock import lock_holder, locked


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[dict[str, str]], str]]:
    """Run the command; return its status, its findings and its error."""
    from nmt.doctor import main

    def run(*folders: Path) -> tuple[int, list[dict[str, str]], str]:
        status = 0
        try:
            main([*map(str, folders), "--json"])
        except SystemExit as exit:
            status = int(exit.code or 0)
        captured = capsys.readouterr()
        return status, [json.loads(line) for line in captured.out.splitlines()], captured.err

    return run


def test_the_installation(doctor: Callable[..., Any]) -> None:
    status, found, _ = doctor()
    assert status == 0
    assert {"python", "torch", "sentencepiece", "font for Chinese", "GPU"} <= {each["what"] for each in found}


@pytest.mark.parametrize("name", ["best", "last"])
def test_a_checkpoint_that_is_lost(run: Path, doctor: Callable[..., Any], name: str) -> None:
    """The records tell that there was one; without them training may have ended before its first validation."""
    shutil.rmtree(run / "checkpoints" / name)
    status, found, _ = doctor(run)
    assert status == 2
    (lost,) = (each for each in found if each["state"] == "damaged")
    assert (Path(lost["what"]).name, lost["found"][:7]) == (name, "is lost")
    (run / "metrics.jsonl").unlink()
    status, found, _ = doctor(run)
    assert status == 0
    assert "before its first validation" in found[1 if name == "best" else 2]["found"]


def test_a_checkpoint_that_is_about_to_be_saved_is_not_lost(run: Path, command: Callable[..., Any]) -> None:
    """A validation is recorded before its checkpoint is saved. Locks are between processes."""
    shutil.rmtree(run / "checkpoints" / "best")
    with locked(run):
        done = command("doctor", "run", cwd=run.parent)
    assert (done.returncode, "damaged" in done.stdout) == (0, False), done.stdout


def test_a_run_that_is_well(run: Path, doctor: Callable[..., Any]) -> None:
    status, found, _ = doctor(run)
    assert status == 0
    assert [each["state"] for each in found[:-1]] == ["ok"] * 6
    names = ["run", "best", "last", "config.yaml", "metrics.jsonl", "alignments.jsonl"]
    assert [Path(each["what"]).name for each in found[:-1]] == names
    assert found[2]["found"] == "en to fr, update 100, can be continued"


@pytest.mark.parametrize(
    "name", ["model.safetensors", "config.yaml", "joint.model", "training_state.pt", "manifest.json"]
)
def test_any_file_that_is_damaged_is_named(run: Path, doctor: Callable[..., Any], name: str) -> None:
    path = run / "checkpoints" / "last" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    status, found, _ = doctor(run)
    assert status == 2
    (damaged,) = (each for each in found if each["state"] == "damaged")
    assert name in damaged["found"]
    assert str(run / "checkpoints" / "best") in damaged["found"]  # what to use instead


def test_a_file_that_cannot_be_read_is_named(run: Path, doctor: Callable[..., Any]) -> None:
    path = run / "checkpoints" / "last" / "manifest.json"
    path.unlink()
    path.mkdir()  # as unreadable as a file of somebody else, for the superuser too
    status, found, _ = doctor(run)
    assert status == 2
    (damaged,) = (each for each in found if each["state"] == "damaged")
    assert "manifest.json" in damaged["found"]


def test_a_datastore(run: Path, doctor: Callable[..., Any], command: Callable[..., Any]) -> None:
    assert command("datastore", "run", cwd=run.parent).returncode == 0
    status, found, _ = doctor(run)
    (well,) = (each for each in found if each["what"] == str(run / "datastore"))
    assert (status, well["state"], well["found"].endswith(" subwords")) == (0, "ok", True)
    with (run / "datastore" / "pairs.jsonl").open("a") as file:
        file.write("\n")
    status, found, _ = doctor(run)
    (damaged,) = (each for each in found if each["state"] == "damaged")
    assert (status, damaged["what"]) == (2, str(run / "datastore"))
    assert "make it anew with python -m nmt.datastore" in damaged["found"]


def test_a_state_of_another_version_cannot_be_continued(run: Path, doctor: Callable[..., Any]) -> None:
    """Its optimizer has other groups of parameters; resuming refuses it, too."""
    last = run / "checkpoints" / "last"
    state = torch.load(last / "training_state.pt", weights_only=True)
    state["optimizer"]["param_groups"].pop()
    torch.save(state, last / "training_state.pt")
    (last / "manifest.json").unlink()
    status, found, _ = doctor(run)
    assert status == 2
    (damaged,) = (each for each in found if each["state"] == "damaged")
    assert "another version's" in damaged["found"]


def test_settings_that_are_cut(run: Path, doctor: Callable[..., Any]) -> None:
    (run / "config.yaml").write_bytes((run / "config.yaml").read_bytes()[:50])
    status, found, _ = doctor(run)
    (damaged,) = (each for each in found if each["state"] == "damaged")
    assert (status, damaged["what"]) == (2, str(run / "config.yaml"))


def test_notes(run: Path, doctor: Callable[..., Any]) -> None:
    """None of these is damage: a resume does with each what is told."""
    (run / "checkpoints" / ".last.1.tmp").mkdir()
    (run / "checkpoints" / "best" / "manifest.json").unlink()
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": Infinity}\nhalf a rec')
    status, found, _ = doctor(run)
    notes = [each["found"] for each in found if each["state"] == "note"]
    assert status == 0
    assert any("has no manifest.json" in note for note in notes)
    assert any("was left by a killed training" in note for note in notes)
    assert any(note.startswith("2 lines are no records") for note in notes)


def test_a_checkpoint_between_two_names_is_not_lost(run: Path, doctor: Callable[..., Any]) -> None:
    """Its training was killed while it replaced it: the next one renames it back, and readers find it."""
    last = run / "checkpoints" / "last"
    last.rename(retired(last))
    status, found, _ = doctor(run)
    assert status == 0
    (state,) = (each["state"] for each in found if "can be continued" in each["found"])
    assert state == "ok"


def test_a_checkpoint_that_is_replaced_meanwhile_is_not_damaged(
    run: Path, doctor: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training saves after the manifest is read: once with other weights, and once when the next file is missing."""
    last = run / "checkpoints" / "last"
    saved = [shutil.copytree(last, last.with_name(f".last.{number}.tmp")) for number in (1, 2)]
    for folder in saved:
        (folder / "training_state.pt").write_bytes((last / "training_state.pt").read_bytes() + b"other")
        write_manifest(folder)

    def digest(path: Path) -> str:
        if saved and path.parent == last:
            replace_folder(saved.pop(), last)
            if not saved:
                raise FileNotFoundError(path)
        return digest_of(path)

    monkeypatch.setattr("nmt.models.manifest.digest_of", digest)
    status, found, _ = doctor(run)
    assert (status, saved) == (0, [])
    assert sum("can be continued" in each["found"] for each in found) == 1


def test_who_trains(run: Path, command: Callable[..., Any]) -> None:
    """Locks are between processes, so the command is one of its own."""
    assert lock_holder(run) is None
    links = run.parent / "outputs/latest"
    links.mkdir(parents=True)
    for name in ("checkpoints", "config.yaml", "metrics.jsonl"):
        (links / name).symlink_to(run / name)
    with locked(run):
        done = command("doctor", "run", "outputs/latest", cwd=run.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("run: is being trained in by process ") == 2


def test_who_trains_can_be_asked_by_those_who_may_only_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    path_open = Path.open

    def noting(path: Path, mode: str = "r", **options: Any) -> Any:
        opened.append(mode)
        return path_open(path, mode, **options)

    monkeypatch.setattr(Path, "open", noting)
    assert lock_holder(run) is None
    assert opened == ["r"]


def test_a_wrong_option_is_one_line(call: Callable[..., Any]) -> None:
    done = call("doctor", "--jsn")
    assert done.returncode == 2
    assert done.stderr == "error: unrecognized arguments: --jsn; see --help\n"


def test_a_cache(tiny_run: Path, tmp_path: Path, doctor: Callable[..., Any]) -> None:
    cache = Path(shutil.copytree(tiny_run.parents[1] / "tiny-cache", tmp_path / "cache"))
    tables = sorted(cache.glob("*.arrow"))
    status, found, _ = doctor(cache)
    assert (status, [each["state"] for each in found[:-1]]) == (0, ["ok"] * len(tables))
    with tables[0].open("ab") as file:
        file.write(b"x")
    digest_file(tables[1]).unlink()
    left = f".encoded-1.arrow.{socket.gethostname()}.999999999-x"  # of a table that was never finished
    (cache / left).mkdir()
    status, found, _ = doctor(cache)
    assert status == 2
    assert [each["state"] for each in found[:2]] == ["damaged", "note"]
    assert left in [Path(each["what"]).name for each in found]


@pytest.mark.parametrize(
    ("name", "message"), [("nowhere", "no folder"), ("empty", "is neither a run, a checkpoint nor")]
)
def test_what_is_no_run(tmp_path: Path, doctor: Callable[..., Any], name: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    status, _, error = doctor(tmp_path / name)
    assert status == 2
    assert message in error
