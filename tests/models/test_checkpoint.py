"""Checkpoints are whole, atomic, and loaded without running code."""

import copy
import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from nmt.config.file import load_config
from nmt.config.schema import AttentionConfig, ModelConfig, TrainConfig
from nmt.errors import UserError
from nmt.models import checkpoint
from nmt.models.build import build_model
from nmt.models.checkpoint import (
    CONFIG,
    TRAINING_STATE,
    WEIGHTS,
    find_checkpoint,
    load_checkpoint,
    recover,
    resolve_device,
    retired,
    save_checkpoint,
    training_state,
)
from nmt.models.manifest import MANIFEST
from nmt.text.tokenizer import build_tokenizers

LINES = ["the small cat sleeps on the old mat.", "a dog sees the cat, and the cat sees a dog."] * 20


@pytest.fixture(scope="module")
def parts():
    config = TrainConfig(model=ModelConfig(embedding_size=6, hidden_size=8, tied_embeddings="all"))
    tokenizers = build_tokenizers(LINES, LINES, config.tokenizer)
    size = len(tokenizers.target)
    return build_model(config.model, size, size, joint=True), config, tokenizers


def save(parts, folder: Path, **changes) -> None:
    model, config, tokenizers = parts
    save_checkpoint(folder, model, config, tokenizers, step=7, **changes)


def test_round_trip_with_tied_weights(parts, tmp_path: Path):
    folder = tmp_path / "run" / "checkpoints" / "best"
    save(parts, folder)
    found = load_checkpoint(tmp_path / "run")
    assert (found.folder, found.step, found.config) == (folder, 7, parts[1])
    assert found.model.output.weight is found.model.decoder.embedding.weight
    for name, value in parts[0].state_dict().items():
        torch.testing.assert_close(found.model.state_dict()[name], value, rtol=0, atol=0)
    assert not found.model.training


def test_weights_that_lie_in_one_piece_of_memory_are_written_one_by_one(parts, tmp_path: Path):
    """As cuDNN keeps those of recurrent layers on a GPU."""
    model, config, tokenizers = parts
    save_checkpoint(tmp_path / "apart", model, config, tokenizers, step=1)
    weights = list(model.encoder.rnn.parameters())
    memory = torch.cat([weight.detach().flatten() for weight in weights])
    for weight, part in zip(weights, memory.split([weight.numel() for weight in weights]), strict=True):
        weight.data = part.view_as(weight)
    save_checkpoint(tmp_path / "together", model, config, tokenizers, step=1)
    apart, together = ((tmp_path / name / WEIGHTS).read_bytes() for name in ("apart", "together"))
    assert apart == together
    assert weights[0].untyped_storage().nbytes() == memory.nbytes


def test_only_the_needed_files(parts, tmp_path: Path):
    save(parts, tmp_path / "best")
    names = {"model.safetensors", "config.yaml", "joint.model", "manifest.json"}
    assert {path.name for path in (tmp_path / "best").iterdir()} == names
    assert {path.name for path in tmp_path.iterdir()} == {"best"}


def test_training_state_is_loaded_without_pickled_code(parts, tmp_path: Path):
    state = {"step": 3, "moments": torch.ones(2), "nested": {"list": [1.0, None, "text"]}}
    save(parts, tmp_path / "last", training_state=state)
    with training_state(tmp_path / "last") as found:
        pass
    assert found["nested"] == state["nested"]
    torch.testing.assert_close(found["moments"], torch.ones(2))
    save(parts, tmp_path / "best")
    with (
        pytest.raises(UserError, match=r"cannot continue from .*: it has no training_state\.pt; put back a copy"),
        training_state(tmp_path / "best"),
    ):
        pass


def test_a_crash_while_writing_leaves_the_old_one(parts, tmp_path: Path, monkeypatch):
    save(parts, tmp_path / "last")
    monkeypatch.setattr(checkpoint, "save_config", raising(OSError("disk full")))
    with pytest.raises(UserError, match=r"cannot write .*last: disk full"):
        save(parts, tmp_path / "last")
    assert [path.name for path in tmp_path.iterdir()] == ["last"]
    assert load_checkpoint(tmp_path / "last").step == 7


def test_a_crash_between_the_renames_is_mended(parts, tmp_path: Path):
    for name in ("best", "last"):
        save(parts, tmp_path / name)
        (tmp_path / name).rename(retired(tmp_path / name))
    recover(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"best", "last"}


def test_a_link_to_a_checkpoint_is_replaced_by_checkpoints(parts, tmp_path: Path):
    """Its files may have been moved to another disk, where they stay."""
    folder, moved = tmp_path / "last", tmp_path / "moved"
    save_checkpoint(moved, *parts, step=1)
    folder.symlink_to(moved)
    for step in (2, 3):
        save_checkpoint(folder, *parts, step=step)
        assert load_checkpoint(folder).step == step
        assert {path.name for path in tmp_path.iterdir()} == {"last", "moved"}
    shutil.rmtree(folder)
    folder.symlink_to(tmp_path / "gone")
    save_checkpoint(folder, *parts, step=4)
    assert load_checkpoint(folder).step == 4
    retired(folder).symlink_to(moved)  # of a trainer that was killed at that moment
    recover(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"last", "moved"}
    assert load_checkpoint(moved).step == 1


def test_what_killed_writers_left_is_removed_by_the_next_trainer_only(parts, tmp_path: Path):
    save(parts, tmp_path / "last")
    leftovers = {".last.123.tmp", ".best.45.tmp", ".last.old"}
    for name in leftovers:
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").touch()
    assert load_checkpoint(tmp_path / "last").step == 7
    assert {path.name for path in tmp_path.iterdir()} == {"last", *leftovers}
    recover(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"last"}
    recover(tmp_path / "none")


# What the writer calls, in the order of its calls: flushes of a file, of the folder, two renames and removals.
CALLS = ["rmtree", "flush", "flush", "flush", "flush", "flush", "rmtree", "rename", "rename", "flush", "rmtree"]


@pytest.mark.parametrize("name", ["best", "last"])
def test_a_reader_at_every_point_of_a_writer_finds_a_whole_checkpoint_and_changes_nothing(
    parts, tmp_path: Path, monkeypatch, name: str
):
    """The reader comes before and after each call that changes a folder; the writer is not disturbed."""
    folder = tmp_path / "checkpoints" / name
    model, config, tokenizers = parts
    save_checkpoint(folder, model, config, tokenizers, step=1)
    calls: list[str] = []
    steps: list[Any] = []

    def read() -> None:
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        steps.extend(load_checkpoint(place).step for place in (tmp_path, folder))
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before

    def watched(function):
        def call(*arguments, **options):
            calls.append(function.__name__)
            read()
            function(*arguments, **options)
            read()

        return call

    monkeypatch.setattr(shutil, "rmtree", watched(shutil.rmtree))
    monkeypatch.setattr(checkpoint, "flush", watched(checkpoint.flush))
    monkeypatch.setattr(Path, "rename", watched(Path.rename))
    save_checkpoint(folder, model, config, tokenizers, step=2)
    assert calls == CALLS
    assert steps == sorted(steps)
    assert set(steps) == {1, 2}


@pytest.mark.parametrize("between_renames", [False, True])
def test_a_checkpoint_replaced_while_it_is_read_is_read_again(
    parts, tmp_path: Path, monkeypatch, between_renames: bool
):
    model, config, tokenizers = parts
    folder = tmp_path / "best"
    save_checkpoint(folder, model, config, tokenizers, step=1)
    if between_renames:
        folder.rename(retired(folder))
    read: list[Path] = []

    def replaced_meanwhile(path: Path):
        found = load_config(path)
        if not read:
            save_checkpoint(folder, model, config, tokenizers, step=2)
        read.append(path.parent)
        return found

    monkeypatch.setattr(checkpoint, "load_config", replaced_meanwhile)
    assert load_checkpoint(folder).step == 2
    assert read == [retired(folder) if between_renames else folder, folder]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: content[: len(content) // 2], "RuntimeError"),
        (lambda content: b"", "EOFError"),
        (lambda content: b"nonsense" * 9, "UnpicklingError"),
        (lambda content: b"run_dir: x", "IndexError"),
        (lambda content: b"\x80\x02rK", "error"),  # of the struct module
    ],
)
def test_a_damaged_training_state_is_explained(parts, tmp_path: Path, damage, reason: str):
    save(parts, tmp_path / "last", training_state={"progress": {"step": 3}, "moments": torch.ones(999)})
    file = tmp_path / "last" / TRAINING_STATE
    file.write_bytes(damage(file.read_bytes()))
    with (
        pytest.raises(UserError, match=r"training_state\.pt is not as it was saved"),
        training_state(tmp_path / "last"),
    ):
        pass
    (tmp_path / "last" / MANIFEST).unlink()
    with (
        pytest.raises(UserError, match=rf"cannot continue from .*/last/training_state\.pt: .*\({reason}\)") as caught,
        training_state(tmp_path / "last"),
    ):
        pass
    assert "\n" not in str(caught.value)
    assert "another run_dir" in str(caught.value)


def test_a_checkpoint_is_compared_with_its_manifest_unless_that_is_declined(parts, tmp_path: Path):
    folder = tmp_path / "best"
    save(parts, folder)
    with (folder / CONFIG).open("a") as file:
        file.write("# edited\n")
    with pytest.raises(UserError, match=r"config\.yaml is not as it was saved"):
        load_checkpoint(folder)
    assert load_checkpoint(folder, verified=False).folder == folder


def test_a_training_state_that_cannot_be_used_is_explained_but_other_errors_pass(parts, tmp_path: Path):
    save(parts, tmp_path / "last", training_state={"progress": {}})
    with (
        pytest.raises(UserError, match=r"training_state\.pt: .* \(KeyError: 'loader'\); put back a copy, or give"),
        training_state(tmp_path / "last") as state,
    ):
        state["loader"]
    for error in (UserError("another corpus"), AssertionError("a defect"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught, training_state(tmp_path / "last"):
            raise error
        assert caught.value is error


def raising(error: Exception):
    def function(*_):
        raise error

    return function


def test_best_is_preferred_to_last(parts, tmp_path: Path):
    for name in ("last", "best"):
        save(parts, tmp_path / "checkpoints" / name)
    assert find_checkpoint(tmp_path).name == "best"


def test_a_folder_that_is_none_is_explained(tmp_path: Path):
    with pytest.raises(UserError, match=r"no checkpoint at .*missing: there is no such folder"):
        find_checkpoint(tmp_path / "missing")
    with pytest.raises(UserError, match=r"neither checkpoints/best, checkpoints/last nor the folder itself"):
        find_checkpoint(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_defaults_of_torch_do_not_matter(parts, tmp_path: Path, dtype: torch.dtype):
    save(parts, tmp_path / "best")
    expected = load_checkpoint(tmp_path / "best").model.state_dict()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("meta"):
            found = load_checkpoint(tmp_path / "best").model.state_dict()
        assert torch.get_default_dtype() == dtype
    finally:
        torch.set_default_dtype(torch.float32)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)


def test_a_folder_whose_name_is_not_utf8_is_explained(parts, tmp_path: Path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    save(parts, tmp_path / "best")
    (tmp_path / "best").rename(folder)
    with pytest.raises(UserError, match=r"caf\\udce9' is no path in UTF-8: rename it"):
        load_checkpoint(folder)


def test_damaged_or_foreign_weights_are_explained(parts, tmp_path: Path):
    save(parts, tmp_path / "best")
    (tmp_path / "best" / "model.safetensors").write_bytes(b"nonsense" * 10)
    (tmp_path / "best" / MANIFEST).unlink()
    with pytest.raises(
        UserError, match=r"cannot load .*model\.safetensors: .* does not fit config\.yaml, or is damaged"
    ):
        load_checkpoint(tmp_path / "best")
    model, config, tokenizers = parts
    other = dataclasses.replace(config, model=dataclasses.replace(config.model, hidden_size=10))
    save_checkpoint(tmp_path / "best", model, other, tokenizers, step=7)
    with pytest.raises(UserError, match="does not fit"):
        load_checkpoint(tmp_path / "best")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(parts, tmp_path: Path, value: float):
    model, config, tokenizers = parts
    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken.output.bias[3] = value
    save_checkpoint(tmp_path / "best", broken, config, tokenizers, step=7)
    with pytest.raises(UserError, match=r"output\.bias has values that are not finite; it is damaged"):
        load_checkpoint(tmp_path / "best")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"hidden_size": 10**9}, "too few for model.hidden_size"),
        ({"num_layers": 10**8}, "too few for model.num_layers=100000000"),
        ({"embedding_size": 10**9}, "too few for model.embedding_size"),
        ({"attention": AttentionConfig(size=10**9)}, r"too few for model\.attention\.size"),
        ({"attention": AttentionConfig(score="location", num_basis=10**9)}, r"too few for model\.attention\.num_basis"),
        ({"tied_embeddings": "target"}, r"Missing key\(s\) in state_dict: \"encoder.embedding.weight\""),
    ],
)
def test_a_configuration_of_another_size_is_refused_before_memory_is_taken(
    parts, tmp_path: Path, changed: dict[str, Any], reason: str
):
    model, config, tokenizers = parts
    other = dataclasses.replace(config, model=dataclasses.replace(config.model, **changed))
    save_checkpoint(tmp_path / "best", model, other, tokenizers, step=7)
    with pytest.raises(UserError, match=rf"cannot load .*{reason}; it does not fit config\.yaml"):
        load_checkpoint(tmp_path / "best")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_missing_gpu_is_explained():
    assert resolve_device("auto") == torch.device("cpu")
    with pytest.raises(UserError, match="torch sees no CUDA GPU here; use cpu or auto"):
        resolve_device("cuda")


def test_a_device_that_does_not_exist_is_refused():
    with pytest.raises(UserError, match="unknown device 'gpu': choose one of auto, cpu, cuda"):
        resolve_device("gpu")


def test_the_same_model_is_the_same_file(parts, tmp_path: Path):
    """Its digest tells whether two runs ended alike; safetensors writes several metadata in any order."""
    model, config, tokenizers = parts
    for name in "abcdefgh":
        save_checkpoint(tmp_path / name, model, config, tokenizers, step=3, longest_source=17)
    assert len({(tmp_path / name / "model.safetensors").read_bytes() for name in "abcdefgh"}) == 1
    found = load_checkpoint(tmp_path / "a")
    assert (found.step, found.longest_source) == (3, 17)


def test_weights_saved_without_their_lengths_are_cut_at_the_configured_one(parts, tmp_path: Path):
    model, config, tokenizers = parts
    save_checkpoint(tmp_path / "best", model, config, tokenizers, step=3)
    assert load_checkpoint(tmp_path / "best").longest_source == config.batch.max_length
    path = tmp_path / "best" / "model.safetensors"
    save_file(load_file(path), path, {"step": "5"})  # as before there was a manifest
    (tmp_path / "best" / "manifest.json").unlink()
    assert load_checkpoint(tmp_path / "best").step == 5


@pytest.mark.parametrize("name", ["step", "longest"])
def test_metadata_that_are_no_numbers_are_refused(parts, tmp_path: Path, name: str):
    save(parts, tmp_path / "best")
    path = tmp_path / "best" / "model.safetensors"
    save_file(load_file(path), path, {name: "many"})
    (tmp_path / "best" / "manifest.json").unlink()
    with pytest.raises(UserError, match="cannot load"):
        load_checkpoint(tmp_path / "best")


def test_an_empty_folder_called_best_has_lost_nothing(tmp_path: Path) -> None:
    (tmp_path / "best").mkdir()
    with pytest.raises(UserError, match="neither checkpoints/best, checkpoints/last nor the folder itself"):
        find_checkpoint(tmp_path / "best")
