"""The mean of several models' weights: the script, with untrained models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.models.build import build_model
from nmt.models.checkpoint import load_checkpoint, save_checkpoint
from nmt.text.tokenizer import Tokenizers
from nmt.text.vocabulary import Vocabulary
from tests.composing import compose

NOISES = (("a", 0.0), ("b", 0.1), ("c", -0.1))
SMALL = ("model.embedding_size=8", "model.hidden_size=8", "model.tied_embeddings=target", "tokenizer.kind=whitespace")


def save(folder: Path, *overrides: str, seed: int = 1, noise: float = 0.0, step: int = 1, longest: int = 9) -> str:
    """Save a model whose weights are those of a seed, and noise."""
    config = compose("train", *SMALL, *overrides)
    side = Vocabulary(b"a\nb\nc\n")
    torch.manual_seed(seed)
    model = build_model(config.model, len(side), len(side), joint=False)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=noise)
    save_checkpoint(folder, model, config, Tokenizers(side, Vocabulary(side.model)), step=step, longest=longest)
    return str(folder)


def test_every_weight_is_the_mean(tmp_path: Path, call: Callable[..., int]) -> None:
    runs = [
        save(tmp_path / name, noise=noise, step=n, longest=9 - n) for n, (name, noise) in enumerate(NOISES, start=1)
    ]
    assert call("average_weights", *runs, "--output", str(tmp_path / "mean")) == 0
    found = load_checkpoint(tmp_path / "mean")
    members = [load_checkpoint(run).model.state_dict() for run in runs]
    for name, mean in found.model.state_dict().items():
        expected = sum(member[name].double() for member in members) / len(runs)
        torch.testing.assert_close(mean.double(), expected, rtol=0, atol=1e-7)
    assert (found.step, found.longest) == (3, 6)
    assert found.model.output.weight is found.model.decoder.embedding.weight


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"seed": 2}, "did not begin with the same weights"),
        ({"overrides": ("model.cell=lstm",)}, "are different models, which have no mean: they differ in model.cell"),
        ({"overrides": ("data.target_language=de",)}, "cannot translate together"),
    ],
)
def test_models_without_a_mean_are_refused(
    other: dict[str, Any],
    message: str,
    tmp_path: Path,
    call: Callable[..., int],
    capfd: pytest.CaptureFixture[str],
) -> None:
    runs = save(tmp_path / "a"), save(tmp_path / "b", *other.get("overrides", ()), seed=other.get("seed", 1))
    assert call("average_weights", *runs, "--output", str(tmp_path / "mean")) == 2
    assert message in capfd.readouterr().err
    assert not (tmp_path / "mean").exists()


def test_dropout_may_differ(tmp_path: Path, call: Callable[..., int]) -> None:
    runs = save(tmp_path / "a"), save(tmp_path / "b", "model.dropout=0.4", noise=0.1)
    assert call("average_weights", *runs, "--output", str(tmp_path / "mean")) == 0


@pytest.mark.parametrize(
    ("runs", "output", "message"),
    [
        (["a"], "mean", "one model has no mean: give two runs or more"),
        (["a", "a"], "a", "--output a exists: give a new folder"),
        (["a", "b"], "mean", "no checkpoint at b: there is no such folder"),
    ],
)
def test_mistakes(
    runs: list[str],
    output: str,
    message: str,
    tmp_path: Path,
    call: Callable[..., int],
    capfd: pytest.CaptureFixture[str],
) -> None:
    save(tmp_path / "a")
    assert call("average_weights", *runs, "--output", output) == 2
    assert message in capfd.readouterr().err
