"""Checkpoints are whole, atomic, and loaded without running code."""

import dataclasses
from pathlib import Path

import pytest
import torch

from nmt.config import ModelConfig, TrainConfig
from nmt.errors import UserError
from nmt.models import checkpoint
from nmt.models.build import build_model
from nmt.models.checkpoint import find_checkpoint, load_checkpoint, load_training_state, resolve_device, save_checkpoint
from nmt.tokenizer import build_tokenizers

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


def test_only_the_needed_files(parts, tmp_path: Path):
    save(parts, tmp_path / "best")
    assert {path.name for path in (tmp_path / "best").iterdir()} == {"model.safetensors", "config.yaml", "joint.model"}
    assert {path.name for path in tmp_path.iterdir()} == {"best"}


def test_training_state_is_loaded_without_pickled_code(parts, tmp_path: Path):
    state = {"step": 3, "moments": torch.ones(2), "nested": {"list": [1.0, None, "text"]}}
    save(parts, tmp_path / "last", training_state=state)
    found = load_training_state(tmp_path / "last")
    assert found["nested"] == state["nested"]
    torch.testing.assert_close(found["moments"], torch.ones(2))
    save(parts, tmp_path / "best")
    with pytest.raises(UserError, match=r"cannot continue from .*: it has no training_state\.pt"):
        load_training_state(tmp_path / "best")


def test_a_crash_while_writing_leaves_the_old_one(parts, tmp_path: Path, monkeypatch):
    save(parts, tmp_path / "last")
    monkeypatch.setattr(checkpoint, "save_config", raising(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save(parts, tmp_path / "last")
    assert load_checkpoint(tmp_path / "last").step == 7


def test_a_crash_between_the_renames_is_mended(parts, tmp_path: Path):
    save(parts, tmp_path / "last")
    (tmp_path / "last").rename(checkpoint.retired(tmp_path / "last"))
    assert load_checkpoint(tmp_path / "last").step == 7


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


def test_damaged_or_foreign_weights_are_explained(parts, tmp_path: Path):
    save(parts, tmp_path / "best")
    (tmp_path / "best" / "model.safetensors").write_bytes(b"nonsense" * 10)
    with pytest.raises(
        UserError, match=r"cannot load .*model\.safetensors: .* does not fit config\.yaml, or is damaged"
    ):
        load_checkpoint(tmp_path / "best")
    model, config, tokenizers = parts
    other = dataclasses.replace(config, model=dataclasses.replace(config.model, hidden_size=10))
    save_checkpoint(tmp_path / "best", model, other, tokenizers, step=7)
    with pytest.raises(UserError, match="does not fit"):
        load_checkpoint(tmp_path / "best")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_missing_gpu_is_explained():
    assert resolve_device("auto") == torch.device("cpu")
    with pytest.raises(UserError, match="torch sees no CUDA GPU here; use cpu or auto"):
        resolve_device("cuda")
