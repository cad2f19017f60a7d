"""`python -m nmt.share`, and `hub:USER/NAME` wherever a checkpoint is given, against a hub on this machine."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from nmt import Translator
from nmt.config.schema import EvaluateSearchConfig, ServeConfig, TrainConfig, TrainerConfig
from nmt.models.checkpoint import TRAINING_STATE
from nmt.serving.server import load
from nmt.share import stage
from nmt.training.resuming import find_initial_checkpoint
from tests.hub_stand_in import Hub
from tests.runs import ROOT

NAME, ADDRESS = "me/en-fr", "hub:me/en-fr"
FIXED = ["tokenizer.vocab_size", "model.embedding_size", "model.hidden_size", "model.tied_embeddings"]
SENTENCES = ["He sleeps.", "My sister sees the small cat."]
Call = Callable[..., Any]


@pytest.fixture
def shared(hub: Hub, run: Path, call: Call) -> dict[str, bytes]:
    """The files of the run on the hub."""
    done = call("share", "run", NAME)
    assert (done.returncode, done.stderr) == (0, "")
    return hub.files(NAME)


def assert_told(done: Any, message: str) -> None:
    """Assert that a command has ended with one line, beside the notice of a download."""
    assert (done.returncode, done.stdout) == (2, "")
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("fetching ", "notice: "))]
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert message in lines[0]


def test_a_dry_run_lists(hub: Hub, run: Path, call: Call) -> None:
    done = call("share", "run", NAME, "--dry-run")
    assert (done.returncode, done.stderr, hub.requests) == (0, "", [])
    *files, total, note = done.stdout.splitlines()
    sizes = {name: int(size.replace(",", "")) for size, name in map(str.split, files)}
    assert list(sizes) == [
        *("config.yaml", "model.safetensors", "joint.model", "manifest.json"),
        *("README.md", "alignment.png"),
    ]
    assert total.split() == [f"{sum(sizes.values()):,}", *f"bytes of 6 files for {ADDRESS}".split()]
    assert note.startswith("note: README.md names no license")


def test_up_and_down_again(hub: Hub, run: Path, best: Path, call: Call, command: Call, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in best.iterdir()}
    options = ("--private", "--message", "for you")
    done = call("share", "run", NAME, *options)
    told = f"shared at {hub.endpoint}/{NAME}\npython -m nmt.translate --checkpoint {ADDRESS}\n"
    assert (done.returncode, done.stderr, done.stdout[-len(told) :]) == (0, "", told)
    assert (hub.models[NAME].private, hub.messages) == (True, ["for you"])
    there = {name: data for name, data in hub.files(NAME).items() if name != ".gitattributes"}
    assert {path.name: path.read_bytes() for path in best.iterdir()} == before
    assert there == before | {"README.md": before["README.md"].replace(b"hub:USER/NAME", ADDRESS.encode())}
    assert there["README.md"] != before["README.md"]
    strange = {"training_state.pt": b"a pickle", "model.py": b"import os", "checkpoints/best/config.yaml": b"a: 1"}
    hub.models[NAME].commit("main", hub.files(NAME) | strange)
    done = command("translate", "--checkpoint", ADDRESS, *SENTENCES, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert done.stderr.startswith("fetching 0.8 MB of hub:me/en-fr")
    here = call("translate", "--checkpoint", str(run), *SENTENCES)
    assert done.stdout == here.stdout != ""
    snapshot = Translator.load(ADDRESS).checkpoint
    assert snapshot is not None
    assert {path.name: path.read_bytes() for path in snapshot.iterdir()} == there


def test_everything_that_takes_a_checkpoint_takes_an_address(
    shared: dict[str, bytes], run: Path, call: Call, tmp_path: Path
) -> None:
    done = call("evaluate", f"checkpoint={ADDRESS}@main", "num_heatmaps=0", "threads=1")
    assert done.returncode == 0, done.stderr
    found = tmp_path / "outputs" / "hub" / f"{NAME}@main" / "evaluation" / "test" / "metrics.json"
    ours, theirs = (json.loads(path.read_text()) for path in (found, run / "evaluation" / "test" / "metrics.json"))
    assert [ours[name] for name in ("bleu", "aer", "step")] == [theirs[name] for name in ("bleu", "aer", "step")]
    served = load(ServeConfig(checkpoint=ADDRESS, compare="run"))
    assert served["checkpoint"].describe() == served["compare"].describe() | {"path": ADDRESS}
    assert call("datastore", ADDRESS).returncode == 0
    assert (tmp_path / "outputs" / "hub" / NAME / "datastore").is_dir()
    search = EvaluateSearchConfig(neighbors=4)
    assert load(ServeConfig(checkpoint=ADDRESS, search=search))["checkpoint"].translator.datastore is not None
    done = call("evaluate", f"checkpoint={ADDRESS}", "num_heatmaps=0", "threads=1", "search.neighbors=4")
    assert done.returncode == 0, done.stderr
    origin = find_initial_checkpoint(TrainConfig(trainer=TrainerConfig(initialize_from=ADDRESS), automatic=FIXED))
    assert origin is not None
    assert (origin / "model.safetensors").read_bytes() == shared["model.safetensors"]


def test_the_state_of_training_stays_here(hub: Hub, run: Path, best: Path, call: Call) -> None:
    (best / TRAINING_STATE).write_bytes(b"a pickle")
    assert_told(call("share", "run", NAME), "run has no best checkpoint")
    assert_told(call("share", "run/checkpoints/last", NAME), "run/checkpoints/last has no best checkpoint")
    (best / TRAINING_STATE).unlink()
    (best / "notes.txt").write_text("private")
    assert call("share", "run/checkpoints/best", NAME).returncode == 0
    assert {"notes.txt", TRAINING_STATE} & set(hub.files(NAME)) == set()


@pytest.mark.parametrize(("name", "is_copied"), [("model.safetensors", True), ("manifest.json", False)])
def test_a_checkpoint_that_is_replaced_meanwhile_is_copied_again(
    best: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_copied: bool
) -> None:
    """Never files of two checkpoints together; nor is it an error where a file is gone before it is copied."""
    newer = Path(shutil.copytree(best, tmp_path / "newer"))
    save_file(
        {name: 2.0 * weight for name, weight in load_file(newer / "model.safetensors").items()},
        newer / "model.safetensors",
    )
    (newer / "manifest.json").unlink()
    copy = shutil.copyfile
    swapped: list[Path] = []

    def copying(source: Path, target: Path) -> None:
        if is_copied or source.name != name:
            copy(source, target)
        if not swapped and source.name == name:
            swapped.append(best.rename(tmp_path / "older"))
            newer.rename(best)
            if not is_copied:
                copy(source, target)

    monkeypatch.setattr(shutil, "copyfile", copying)
    (tmp_path / "staged").mkdir()
    files = stage(best.parents[1], tmp_path / "staged", "me/model")
    assert swapped
    assert "manifest.json" not in {file.name for file in files}
    assert (tmp_path / "staged/model.safetensors").read_bytes() == (best / "model.safetensors").read_bytes()


def test_a_run_without_a_best_checkpoint(hub: Hub, run: Path, best: Path, call: Call) -> None:
    shutil.rmtree(best)
    for place in ("run", "nowhere"):
        assert_told(call("share", place, NAME), f"{place} has no best checkpoint: give the folder of a run")
    assert hub.requests == []


def test_a_damaged_checkpoint_is_not_shared(hub: Hub, best: Path, call: Call) -> None:
    (best / "joint.model").write_bytes(b"damaged")
    assert_told(call("share", "run", NAME), "best/joint.model is not as it was saved")
    assert hub.requests == []


def test_a_run_of_before_cards(hub: Hub, run: Path, best: Path, call: Call) -> None:
    (best / "README.md").unlink()
    (best / "alignment.png").unlink()
    assert call("share", "run", NAME).returncode == 0
    card = hub.files(NAME)["README.md"].decode()
    assert ADDRESS in card
    assert "# Translation from en to fr" in card
    assert "| BLEU |" in card
    assert hub.files(NAME)["alignment.png"].startswith(b"\x89PNG")
    assert not (best / "README.md").exists()


def test_a_license_that_was_filled_in(hub: Hub, best: Path, call: Call) -> None:
    card = best / "README.md"
    card.write_text(card.read_text(encoding="utf-8").replace("license: unknown", "license: mit"), encoding="utf-8")
    done = call("share", "run", NAME)
    assert (done.returncode, "note:" in done.stdout) == (0, False)
    assert b"license: mit" in hub.files(NAME)["README.md"]


def test_a_branch(hub: Hub, shared: dict[str, bytes], best: Path, call: Call) -> None:
    (best / "README.md").write_text("---\nlicense: mit\n---\nLoad hub:USER/NAME", encoding="utf-8")
    done = call("share", "run", NAME, "--revision", "v2")
    assert done.stdout.endswith(f"{hub.endpoint}/{NAME}/tree/v2\npython -m nmt.translate --checkpoint {ADDRESS}@v2\n")
    assert hub.files(NAME) == shared
    assert hub.files(NAME, "v2")["README.md"].endswith(b"Load hub:me/en-fr@v2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run",), "the following arguments are required: USER/NAME; see --help"),
        (("run", "name"), "name is no model of the hub: write hub:USER/NAME"),
        (("run", f"{ADDRESS}@v2"), f"{ADDRESS}@v2 has a revision: write me/en-fr --revision v2"),
        (("run", NAME, "--message", ""), "message"),
    ],
)
def test_wrong_options(hub: Hub, run: Path, call: Call, arguments: tuple[str, ...], message: str) -> None:
    done = call("share", *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr


def test_a_wrong_digest(hub: Hub, shared: dict[str, bytes], call: Call) -> None:
    weights = bytearray(shared["model.safetensors"])
    weights[-1] ^= 1
    hub.models[NAME].commit("main", shared | {"model.safetensors": bytes(weights)})
    done = call("translate", "--checkpoint", ADDRESS, *SENTENCES)
    assert_told(done, "model.safetensors is not as it was saved, but damaged or edited; delete ")
    assert done.stderr.endswith("models--me--en-fr to download it again; its owner may have to upload it again\n")


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (("joint.model",), "joint.model is missing; delete "),
        (("model.safetensors",), f"{ADDRESS} is no model of nmt: it holds no model.safetensors"),
        (("model.safetensors", "config.yaml"), "it holds no config.yaml and no model.safetensors"),
    ],
)
def test_a_missing_file(hub: Hub, shared: dict[str, bytes], call: Call, missing: tuple[str, ...], message: str) -> None:
    kept = {name: data for name, data in shared.items() if name not in missing}
    hub.models[NAME].commit("main", kept)
    assert_told(call("translate", "--checkpoint", ADDRESS, *SENTENCES), message)


def test_names_networks_and_tokens(
    hub: Hub, shared: dict[str, bytes], call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def complaint(address: str) -> Any:
        return call("translate", "--checkpoint", address, *SENTENCES)

    assert_told(complaint("hub:me/en_fr"), "has no model me/en_fr, or your token may not read it: check the name")
    assert_told(complaint("hub:me"), "hub:me is no model of the hub: write hub:USER/NAME")
    assert_told(complaint(f"{ADDRESS}@v9"), "me/en-fr has no revision 'v9'")
    assert_told(call("evaluate", "checkpoint=hub:me/en_fr"), "has no model me/en_fr")
    hub.models[NAME].private = True
    monkeypatch.delenv("HF_TOKEN")
    assert_told(complaint(ADDRESS), "has no model me/en-fr, or it is private (log in with `hf auth login`, or")
    assert_told(call("share", "run", NAME, "--dry-run", "--private", "x"), "unrecognized arguments: x")
    hub.stop()
    assert_told(complaint(ADDRESS), f"cannot reach {hub.endpoint} (")


def test_the_cache_serves_without_network(hub: Hub, shared: dict[str, bytes], call: Call) -> None:
    found = call("translate", "--checkpoint", ADDRESS, *SENTENCES)
    assert found.returncode == 0, found.stderr
    hub.stop()
    again = call("translate", "--checkpoint", ADDRESS, *SENTENCES)
    assert (again.returncode, again.stdout) == (0, found.stdout)
    assert again.stderr.startswith("notice: cannot reach ")


def test_the_client_of_the_hub_is_imported_where_it_is_used() -> None:
    """And nothing that is slow to start, before the options are checked."""
    program = (
        "import sys, nmt.share, nmt.translate, nmt.models.hub\n"
        "print(*{'huggingface_hub', 'torch', 'datasets'} & set(sys.modules))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", program]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "\n"
