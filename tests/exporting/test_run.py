"""What an export refuses, and what it replaces."""

import codecs
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.schema import ModelConfig, SearchConfig, TokenizerConfig, TrainConfig
from nmt.errors import UserError
from nmt.exporting import run as exporting
from nmt.exporting.graphs import write_graphs
from nmt.models.build import build_model
from nmt.models.checkpoint import load_checkpoint, save_checkpoint
from nmt.models.hub import results_folder
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.text.vocabulary import Vocabulary

GRAPHS = {"encoder.onnx", "step.onnx"}


@pytest.fixture(autouse=True)
def few_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "BATCHES", 2)


@pytest.fixture
def export(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: call("export", *map(str, arguments))


def saved(folder: Path, **changes: Any) -> Path:
    """A checkpoint of a small model of segmented text."""
    words = Vocabulary("\n".join("abcdefgh").encode())
    config = TrainConfig(model=ModelConfig(embedding_size=6, hidden_size=8, **changes))
    config.search = SearchConfig(patience=float("inf"))
    torch.manual_seed(0)
    model = build_model(config.model, len(words), len(words), joint=False)
    save_checkpoint(folder, model, config, Tokenizers(words, Vocabulary(words.model)), step=7)
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_segmented_text_has_no_example(tmp_path: Path, export: Callable[..., Any]) -> None:
    """A checkpoint apart from a run is exported into a folder in it; infinity is null in JSON."""
    done = export(saved(tmp_path / "checkpoint"))
    folder = tmp_path / "checkpoint" / "onnx"
    assert (done.returncode, done.stderr) == (0, "")
    assert names(folder) == {*GRAPHS, "source.vocab", "target.vocab", "model.json"}
    model = json.loads((folder / "model.json").read_text(), parse_constant=pytest.fail)
    assert model["search"]["patience"] is None
    assert model["subwords"] == ["source.vocab", "target.vocab"]
    assert model["text"][0] == {"segmentation": "whitespace", "normalization": "identity", "case": "kept"}


def test_the_example_reads_a_byte_order_mark_as_none(tmp_path: Path, export: Callable[..., Any]) -> None:
    """As nmt.translate does; a model that keeps every character would take it for the first letter."""
    side = Tokenizer.train(["abc def"] * 9, TokenizerConfig(normalization="identity", vocab_size=300), 300)
    config = TrainConfig(model=ModelConfig(embedding_size=6, hidden_size=8))
    torch.manual_seed(0)
    model = build_model(config.model, len(side), len(side), joint=True)
    for parameter in model.parameters():
        parameter.data *= 4  # so that a letter more makes a difference
    save_checkpoint(tmp_path / "checkpoint", model, config, Tokenizers(side, side), step=7)
    assert export(tmp_path / "checkpoint").returncode == 0
    line = [sys.executable, str(tmp_path / "checkpoint" / "onnx" / "translate.py")]
    plain, marked = (
        subprocess.run(line, input=mark + b"abc def\nabc\n", capture_output=True, check=True).stdout
        for mark in (b"", codecs.BOM_UTF8)
    )
    assert plain == marked


def test_the_example_writes_and_reads_white_space_as_the_command_does(
    tmp_path: Path, export: Callable[..., Any], call: Callable[..., Any]
) -> None:
    """A translation with carriage returns and tabs is a line all the same; one that ends a line may be of the text."""
    side = Tokenizer.train(["abc def"] * 9, TokenizerConfig(normalization="identity", vocab_size=300), 300)
    config = TrainConfig(model=ModelConfig(embedding_size=6, hidden_size=8))
    torch.manual_seed(0)
    model = build_model(config.model, len(side), len(side), joint=True)
    for parameter in model.parameters():
        parameter.data *= 4
    for name in ("<0x0D>", "<0x09>"):
        model.output.bias.data[side.id_of(name)] += 9
    save_checkpoint(tmp_path / "checkpoint", model, config, Tokenizers(side, side), step=7)
    assert export(tmp_path / "checkpoint").returncode == 0
    (tmp_path / "input").write_bytes(b"abc def\r\nabc\r\r\nfed\r\r\r\n")
    command = ["translate", "--checkpoint", "checkpoint", "--input", "input", "--output", "output", "--device", "cpu"]
    assert call(*command).returncode == 0
    line = [sys.executable, str(tmp_path / "checkpoint" / "onnx" / "translate.py")]
    done = subprocess.run(line, input=(tmp_path / "input").read_bytes(), capture_output=True, check=True)
    assert done.stdout == (tmp_path / "output").read_bytes()
    assert done.stdout.count(b" ") > 9


def test_files_are_made_within_the_folder_and_none_is_left_after_an_error(
    tmp_path: Path, export: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is beside it may be another disk, as for a folder that is mounted into a container."""
    places: list[Path] = []

    def fail(folder: Path, *given: Any) -> None:
        places.append(folder)
        raise UserError("no")

    monkeypatch.setattr(exporting, "write_export", fail)
    assert export(saved(tmp_path / "checkpoint"), "--output", tmp_path / "out").returncode == 2
    assert places[0].parent == tmp_path / "out"
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    assert export(tmp_path / "checkpoint", "--output", tmp_path / "out").returncode == 2
    assert not list((tmp_path / "out").iterdir())


def test_a_model_of_the_hub_is_exported_beside_its_evaluations(
    tmp_path: Path, export: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not into the cache of the hub's client."""
    found = load_checkpoint(saved(tmp_path / "cache"))
    monkeypatch.setattr(exporting, "load_checkpoint", lambda run: found)
    before = names(tmp_path / "cache")
    done = export("hub:me/model")
    assert done.returncode == 0, done.stderr
    assert names(tmp_path / "cache") == before
    assert (tmp_path / results_folder("hub:me/model") / "onnx/model.json").is_file()


def test_an_earlier_export_is_replaced(tmp_path: Path, export: Callable[..., Any]) -> None:
    """Its graphs are removed, and what others have put beside them stays."""
    run, output = tmp_path / "run", tmp_path / "deep" / "output"
    saved(run / "checkpoints" / "last")
    assert export(run, "--int8", "--output", output).returncode == 0
    (output / "notes.txt").touch()
    before = names(output)
    assert {"encoder.int8.onnx", "step.int8.onnx"} < before
    saved(run / "checkpoints" / "last", decoder="luong", readout="linear")
    assert export(run, "--output", output).returncode == 0
    assert names(output) == before - {"encoder.int8.onnx", "step.int8.onnx"}
    assert "Luong" in (output / "model.json").read_text()
    assert export(run).returncode == 0
    assert names(run) == {"checkpoints", "onnx-last"}


def test_nothing_of_an_export_with_other_subwords_is_left(tmp_path: Path, export: Callable[..., Any]) -> None:
    """The example beside it could not read subwords of segmented text."""
    folder = tmp_path / "onnx"
    folder.mkdir()
    for name in ("model.json", "joint.model", "encoder.onnx", "translate.py"):
        (folder / name).touch()
    (folder / "model.json").write_text('{"graphs": {}}', encoding="utf-8")
    done = export(saved(tmp_path / "checkpoint"), "--output", folder)
    assert names(folder) == {*GRAPHS, "source.vocab", "target.vocab", "model.json"}
    assert done.stdout.endswith(f"written to {folder}\n")


@pytest.mark.parametrize("moved", range(5))
def test_an_export_that_is_killed_while_files_are_moved_can_be_repeated(
    moved: int, tmp_path: Path, export: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not leave graphs beside a description of others."""
    saved(tmp_path / "checkpoint")
    move, left = Path.replace, iter(range(moved))

    def replace(path: Path, target: Path) -> Path:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return move(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        assert export("checkpoint", "--output", "out").returncode == 130
    left_over = names(tmp_path / "out") if moved else set()
    assert ("model.json" in left_over) == bool(moved)
    assert not left_over >= GRAPHS
    assert export("checkpoint", "--output", "out").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no checkpoint at nowhere: there is no such folder"),
        (["checkpoint", "--output", "checkpoint"], "checkpoint has other files, and no model.json of an earlier"),
        (["checkpoint", "--output", "foreign"], "foreign has other files, and no model.json of an earlier export"),
        (["checkpoint", "--output", "file"], "--output file is a file: give a folder"),
        (["checkpoint", "--output", "file/folder"], "cannot write file/folder: Not a directory"),
        (["checkpoint", "--to", "tflite"], "argument --to: invalid choice: 'tflite'"),
        ([], "the following arguments are required: RUN; see --help"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], message: str, tmp_path: Path, export: Callable[..., Any]) -> None:
    saved(tmp_path / "checkpoint")
    (tmp_path / "file").touch()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "model.json").write_text("{}", encoding="utf-8")
    done = export(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"error: {message}")
    assert names(tmp_path) == {"checkpoint", "file", "foreign"}
    assert "onnx" not in names(tmp_path / "checkpoint")


def test_an_earlier_export_is_kept_where_a_folder_is_in_the_way(tmp_path: Path, export: Callable[..., Any]) -> None:
    folder = tmp_path / "onnx"
    (folder / "step.onnx").mkdir(parents=True)
    (folder / "model.json").write_text('{"graphs": {}}', encoding="utf-8")
    (folder / "encoder.onnx").touch()
    done = export(saved(tmp_path / "checkpoint"), "--output", folder)
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"error: {folder / 'step.onnx'} is a folder, and a file of this name is to be written"
    )
    assert names(folder) == {"step.onnx", "model.json", "encoder.onnx"}


def test_graphs_that_compute_something_else_are_refused(
    tmp_path: Path, export: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_others(model: Any, *paths: Path) -> None:
        model.decoder.bridge[0].bias.data += 0.01
        write_graphs(model, *paths)
        model.decoder.bridge[0].bias.data -= 0.01

    monkeypatch.setattr(exporting, "write_graphs", write_others)
    done = export(saved(tmp_path / "checkpoint"))
    assert done.returncode == 2
    assert done.stderr.startswith("error: layer_0 of the graphs differs from the model's by ")
    assert ", and 0.001 is allowed, so nothing is written: " in done.stderr
    assert "onnx" not in names(tmp_path / "checkpoint")


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [("log_probs", 0.9e-4, 1.1e-4), ("values", 0.9e-3, 1.1e-3), ("weights", 0.0, float("nan"))],
)
def test_how_much_may_differ(name: str, allowed: float, refused: float) -> None:
    exporting.check_differences({"mask": 0.0, name: allowed})
    with pytest.raises(UserError, match=f"{name} of the graphs differs from the model's by {refused:.1e}, and"):
        exporting.check_differences({"mask": 0.0, name: refused})


def test_graphs_that_cannot_be_run_are_refused(
    tmp_path: Path, export: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "write_graphs", lambda model, *paths: [path.write_bytes(b"no") for path in paths])
    done = export(saved(tmp_path / "checkpoint"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: this model cannot be exported: onnxruntime cannot run its graphs (")


def test_a_package_that_is_missing_is_named(export: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("nmt.export.find_spec", lambda name: None if name == "onnxruntime" else found(name))
    done = export("run")
    assert (done.returncode, done.stderr) == (2, "error: nmt.export needs onnxruntime: pip install -e '.[onnx]'\n")
