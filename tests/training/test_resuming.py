"""Settings that may change when a run is resumed, and beginning with the weights of another."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from nmt.config.file import load_config, save_config
from nmt.config.schema import TrainConfig, TrainerConfig
from nmt.data.batch import collate
from nmt.errors import UserError
from nmt.evaluation.records import read_records
from nmt.fast.objective import token_loss as chunked_loss
from nmt.models.checkpoint import load_checkpoint, retired
from nmt.training.distributed import SINGLE_PROCESS
from nmt.training.objective import token_loss
from nmt.training.reporting import NullReporter
from nmt.training.resuming import find_initial_checkpoint, find_previous_checkpoint
from nmt.training.run import start
from nmt.training.run import train as train_run
from tests.models.small import small_model
from tests.runs import QUIET, records, training_state


@pytest.fixture
def config(tiny_run: Path) -> TrainConfig:
    """The configuration of a run that exists."""
    config = load_config(tiny_run / "config.yaml")
    config.run_dir = str(tiny_run)
    return config


def put(config: Any, name: str, value: object) -> None:
    *groups, last = name.split(".")
    for group in groups:
        config = getattr(config, group)
    setattr(config, last, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model.attention.score", "dot"),
        ("model.num_layers", 2),
        ("tokenizer.kind", "bpe"),
        ("tokenizer.vocab_size", 301),
        ("tokenizer.joint", False),
        ("seed", 9),
    ],
)
def test_what_a_run_is_must_stay(config: TrainConfig, name: str, value: object) -> None:
    put(config, name, value)
    with pytest.raises(
        UserError, match=rf"cannot continue from .* with {name}={value}: it was .* with {name}=.*; restore"
    ):
        find_previous_checkpoint(config)


def test_all_that_is_wrong_is_told_at_once(config: TrainConfig) -> None:
    config.seed, config.model.tied_embeddings, config.tokenizer.source_model = 9, "all", "x.model"
    with pytest.raises(UserError) as caught:
        find_previous_checkpoint(config)
    assert (
        "with seed=9 tokenizer.source_model=x.model model.tied_embeddings=all: it was trained with seed=1 tok"
        in str(caught.value)
    )
    assert "tokenizer.source_model=null" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model.dropout", 0.4),
        ("model.embedding_dropout", 0.1),
        ("model.word_dropout", 0.1),
        ("model.locked_dropout", True),
        ("trainer.consistency", 5.0),
        ("model.fast", "off"),
        ("tokenizer.sampling", 0.1),
        ("optimizer.learning_rate", 1e-5),
        ("trainer.max_steps", 1000),
        ("search.beam_size", 2),
    ],
)
def test_how_it_is_trained_may_change(config: TrainConfig, tiny_run: Path, name: str, value: object) -> None:
    put(config, name, value)
    assert find_previous_checkpoint(config) == tiny_run / "checkpoints" / "last"


@pytest.fixture
def train(call: Callable[..., Any], run: Path, tiny_options: list[str]) -> Callable[..., Any]:
    return lambda *options: call("train", f"run_dir={run}", *tiny_options, *QUIET, *options)


def test_a_run_goes_on_where_its_writer_was_killed(config: TrainConfig, run: Path) -> None:
    checkpoints = run / "checkpoints"
    for name in ("best", "last"):
        (checkpoints / name).rename(retired(checkpoints / name))
    (checkpoints / ".last.99.tmp").mkdir()
    config.run_dir, config.resume = str(run), "never"
    with pytest.raises(UserError, match="already holds a trained run"):
        find_previous_checkpoint(config)
    assert (checkpoints / ".last.99.tmp").is_dir()
    config.resume = "auto"
    assert find_previous_checkpoint(config) == checkpoints / "last"
    assert {path.name for path in checkpoints.iterdir()} == {"best", "last"}


@pytest.mark.parametrize("name", ["model.safetensors", "config.yaml"])
def test_a_damaged_best_is_told_before_training(run: Path, train: Callable[..., Any], name: str) -> None:
    (run / "checkpoints" / "best" / name).write_bytes(b"")
    done = train("trainer.max_steps=130")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"error: run/checkpoints/best/{name} is not as it was saved")
    assert "continuing from" not in done.stdout + done.stderr


def test_the_best_of_a_run_that_lost_its_last_is_kept(run: Path, train: Callable[..., Any]) -> None:
    shutil.rmtree(run / "checkpoints" / "last")
    kept = (run / "checkpoints" / "best" / "model.safetensors").read_bytes()
    lost = "last is lost, and training from the beginning would replace run/checkpoints/best"
    told = {"auto": lost, "never": "already holds a trained run"}
    for resume, message in told.items():
        done = train("trainer.max_steps=1", f"resume={resume}")
        assert done.returncode == 2
        assert message in done.stderr
        assert (run / "checkpoints" / "best" / "model.safetensors").read_bytes() == kept
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    first = next(index for index, line in enumerate(lines) if '"event": "validation"' in line)
    (run / "metrics.jsonl").write_text("".join(lines[: first + 1]), encoding="utf-8")  # killed at its first validation
    done = train("trainer.max_steps=1")
    assert done.returncode == 0, done.stderr


def test_a_run_that_lost_its_checkpoints_begins_anew_and_says_so(run: Path, train: Callable[..., Any]) -> None:
    shutil.rmtree(run / "checkpoints")
    done = train("trainer.max_steps=1")
    assert done.returncode == 0, done.stderr
    assert "warning: run has records of a training but no checkpoint to go on from: it begins anew" in done.stderr
    assert [record["step"] for record in records(run, "train")] == [1]


def test_new_settings_of_the_optimizer_are_used(run: Path, train: Callable[..., Any]) -> None:
    assert training_state(run)["optimizer"]["param_groups"][0]["weight_decay"] == 0.0
    done = train("trainer.max_steps=101", "optimizer.weight_decay=0.5", "optimizer.betas=[0.5,0.6]")
    assert done.returncode == 0, done.stderr
    matrices, vectors = training_state(run)["optimizer"]["param_groups"]
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.5, 0.0)
    assert list(matrices["betas"]) == [0.5, 0.6]
    assert training_state(run)["optimizer"]["state"][0]["step"] == 101


@pytest.mark.parametrize("worse", [True, False])
def test_the_best_is_validated_again_by_another_metric(run: Path, train: Callable[..., Any], worse: bool) -> None:
    """And is kept where it is better than what follows, of which the metric alone would know nothing."""
    kept = (run / "checkpoints" / "best" / "model.safetensors").read_bytes()
    (before,) = (each["bleu"] for each in records(run, "validation") if each["step"] == best_step(run))
    rate = 10.0 if worse else 0.001
    done = train("trainer.max_steps=101", "trainer.metric=bleu", f"optimizer.learning_rate={rate}")
    assert done.returncode == 0, done.stderr
    assert "best was chosen with other validation text or settings: it is validated again" in done.stderr
    after = records(run, "validation")[-1]["bleu"]
    assert (after < before) == worse
    assert training_state(run)["progress"]["best"] == pytest.approx(max(before, after), abs=1e-9)
    assert ((run / "checkpoints" / "best" / "model.safetensors").read_bytes() == kept) == worse


def best_step(run: Path) -> int:
    step = load_checkpoint(run / "checkpoints" / "best").step
    assert step is not None
    return step


def test_the_best_is_validated_again_on_other_text(run: Path, train: Callable[..., Any]) -> None:
    """A worse model on easier text would pass for better, and for ever."""
    kept = (run / "checkpoints" / "best" / "model.safetensors").read_bytes()
    before = training_state(run)["progress"]
    done = train("trainer.max_steps=101", "data.grammar.validation_size=5", "optimizer.learning_rate=10")
    assert done.returncode == 0, done.stderr
    assert "it is validated again" in done.stderr
    after = training_state(run)["progress"]
    assert after["best"] != before["best"]
    assert (after["best_of"] != before["best_of"], after["best"] < records(run, "validation")[-1]["loss"]) == (
        True,
        True,
    )
    assert (run / "checkpoints" / "best" / "model.safetensors").read_bytes() == kept
    assert len({record["digest"] for record in records(run, "validation")[-2:]}) == 2


def test_to_validate_the_best_again_does_not_change_what_is_learned(run: Path, train: Callable[..., Any]) -> None:
    """It is loaded between the random numbers of the run, which dropout draws."""
    options = ("trainer.max_steps=101", "model.dropout=0.5")
    learned = []
    shutil.copytree(run, run.with_name("before"))
    for others in ((), ("data.grammar.validation_size=5",)):
        done = train(*options, *others)
        assert done.returncode == 0, done.stderr
        assert ("it is validated again" in done.stderr) == bool(others)
        learned.append((run / "checkpoints" / "last" / "model.safetensors").read_bytes())
        shutil.rmtree(run)
        shutil.copytree(run.with_name("before"), run)
    assert learned[0] == learned[1]


def test_a_best_that_is_lost_is_not_the_last_in_disguise(
    run: Path, train: Callable[..., Any], call: Callable[..., Any]
) -> None:
    (run / "checkpoints" / "best" / "config.yaml").unlink()
    done = call("translate", "--checkpoint", str(run), "He sleeps.")
    assert done.returncode == 2
    assert "best has lost model.safetensors or config.yaml: put it back, or give" in done.stderr
    done = train("trainer.max_steps=101", "optimizer.learning_rate=10")
    assert done.returncode == 0, done.stderr
    assert "best is lost: the next validation is taken for the best" in done.stderr
    assert best_step(run) == 101


def test_a_best_that_is_lost_after_training_is_validated_anew(run: Path, train: Callable[..., Any]) -> None:
    """Otherwise the weights to go on from would be scored in its place, not their average."""
    shutil.rmtree(run / "checkpoints" / "best")
    done = train("trainer.max_steps=100")
    assert done.returncode == 0, done.stderr
    assert best_step(run) == 100


def test_patience_begins_again_with_another_metric(run: Path, train: Callable[..., Any]) -> None:
    """The run has ended because its loss no longer improved; nothing is known of its BLEU yet."""
    every_update = ("trainer.max_steps=104", "trainer.validate_every_steps=1", "trainer.patience=1")
    done = train(*every_update, "optimizer.learning_rate=100", "schedule.warmup_steps=0")
    assert done.returncode == 0, done.stderr
    ended = training_state(run)["progress"]
    assert (ended["stale"], ended["step"] < 104) == (1, True)
    done = train(*every_update, "trainer.metric=bleu")
    assert done.returncode == 0, done.stderr
    assert training_state(run)["progress"]["step"] > ended["step"]


def test_the_patience_of_plateau_begins_again_with_another_metric(run: Path, train: Callable[..., Any]) -> None:
    """The loss has not improved once, which is tolerated; so is one validation without a better BLEU."""
    worse = ("trainer.validate_every_steps=1", "optimizer.learning_rate=100", "schedule=plateau", "schedule.patience=1")
    for step, metric in ((101, "loss"), (102, "bleu")):
        done = train(*worse, f"trainer.max_steps={step}", f"trainer.metric={metric}")
        assert done.returncode == 0, done.stderr
        assert training_state(run)["schedule"] == {"reduction": 1.0, "stale": 1}


@pytest.mark.parametrize(
    ("limits", "adopted"),
    [
        ({"max_minutes": 12.0}, 1.25),
        ({"max_minutes": None, "max_steps": 9}, None),
        ({"max_minutes": 12.0, "validate_every_epochs": 1}, None),
    ],
)
def test_the_time_between_validations_is_adopted_with_a_limit_of_time(
    config: TrainConfig, run: Path, limits: dict[str, Any], adopted: float | None
) -> None:
    before = load_config(run / "checkpoints/last/config.yaml")
    before.trainer.validate_every_minutes = 1.25
    save_config(before, run / "checkpoints/last/config.yaml")
    config.run_dir, config.automatic = str(run), ["trainer.validate_every_minutes"]
    config.trainer = TrainerConfig(**limits)
    find_previous_checkpoint(config)
    assert config.trainer.validate_every_minutes == adopted


def test_a_setting_is_judged_by_the_values_that_are_adopted(config: TrainConfig, run: Path) -> None:
    """Dropout is not given: it is that of the run, which has none."""
    for name in ("best", "last"):
        path = run / "checkpoints" / name / "config.yaml"
        before = load_config(path)
        before.model.dropout = 0.0
        save_config(before, path)
        path.with_name("manifest.json").unlink()
    config.run_dir, config.automatic, config.model.dropout = str(run), ["model.dropout"], 0.2
    config.trainer.consistency = 5.0
    with pytest.raises(UserError, match=r"trainer\.consistency=5 needs dropout"):
        train_run(config)


def test_settings_reach_the_parts_of_the_trainer(config: TrainConfig, tmp_path: Path) -> None:
    config.run_dir, config.tokenizer.sampling, config.optimizer.clip_norm = str(tmp_path / "run"), 0.2, 0.25
    config.trainer.label_smoothing, config.trainer.consistency, config.model.dropout = 0.15, 3.0, 0.4
    config.seed = 7
    trainer, _ = start(config, NullReporter(), SINGLE_PROCESS)
    step: Any = trainer.training_step
    assert (trainer.loader.sampling, trainer.clip_norm, trainer.loader.seed) == (0.2, 0.25, 7)
    assert (step.config.label_smoothing, step.config.consistency) == (0.15, 3.0)


def test_the_chunked_objective_gets_all_settings() -> None:
    sources, targets = ([np.arange(4, 4 + size, dtype=np.int32) for size in sizes] * 2 for sizes in ((5, 1), (4, 7)))
    model, batch = small_model(dropout=0.3).float(), collate(sources, targets, np.arange(4))
    decoded = model.train()(batch)
    settings = {"label_smoothing": 0.1, "consistency": 2.0}
    found, expected = (objective(model, decoded, batch, **settings) for objective in (chunked_loss, token_loss))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_a_run_that_is_refused_is_left_as_it_was(run: Path, train: Callable[..., Any]) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    done = train("trainer.max_steps=101", "batch.size=77")
    assert done.returncode == 2
    assert "batch.size was" in done.stderr
    assert {path: path.read_bytes() for path in before} == before


def test_a_finished_run_is_evaluated_as_configured_now(run: Path, train: Callable[..., Any]) -> None:
    done = train("trainer.max_steps=100", "trainer.evaluate=true", "search.beam_size=2", "search.length_penalty=0.3")
    assert done.returncode == 0, done.stderr
    assert "beam 2 · length penalty 0.3" in done.stdout
    finals = [each["step"] for each in read_records(run / "metrics.jsonl") if each["event"] == "final"]
    assert set(finals) == {100}


def test_a_run_begins_with_the_weights_of_another(
    tiny_run: Path, tmp_path: Path, call: Callable[..., Any], tiny_options: list[str]
) -> None:
    begun = ("run_dir=tuned", f"trainer.initialize_from={tiny_run}", "trainer.max_steps=1", "seed=5")
    other = ("data.grammar.seed=7", "data.cleaning.max_length=6", "optimizer.learning_rate=1e-9")
    done = call("train", *tiny_options, *QUIET, *begun, *other)
    assert done.returncode == 0, done.stderr
    assert f"beginning with the weights and subwords of {tiny_run}/checkpoints/best at update 0" in done.stderr
    tuned = tmp_path / "tuned" / "checkpoints" / "last"
    origin = tiny_run / "checkpoints" / "best"
    assert (tuned / "joint.model").read_bytes() == (origin / "joint.model").read_bytes()
    before, after = (load_file(folder / "model.safetensors") for folder in (origin, tuned))
    for name in before:
        torch.testing.assert_close(before[name], after[name], rtol=0, atol=1e-8)
    # The new text is shorter, and long sentences have not been forgotten.
    assert load_checkpoint(tuned).longest_source == load_checkpoint(origin).longest_source
    # Once begun, the run goes on from what it has itself.
    again = call("train", *tiny_options, *QUIET, *begun, *other, "trainer.max_steps=2")
    assert "continuing from tuned/checkpoints/last at update 1" in again.stderr


def test_subword_files_of_the_checkpoint_need_not_be_given(config: TrainConfig, tiny_run: Path, tmp_path: Path) -> None:
    """They are not read: the checkpoint has its subwords. Others cannot be given."""
    run = shutil.copytree(tiny_run, tmp_path / "run")
    saved = load_config(run / "checkpoints/best/config.yaml")
    saved.tokenizer.source_model = "gone.model"
    save_config(saved, run / "checkpoints/best/config.yaml")
    config.trainer.initialize_from = str(run)
    find_initial_checkpoint(config)
    assert config.tokenizer.source_model == "gone.model"
    config.run_dir = str(tmp_path / "tuned")
    shutil.copytree(run / "checkpoints" / "best", tmp_path / "tuned" / "checkpoints" / "last")
    put(config, "tokenizer.source_model", None)
    assert find_previous_checkpoint(config) is not None
    assert config.tokenizer.source_model == "gone.model"
    config.tokenizer.source_model = "other.model"
    with pytest.raises(UserError, match=r"tokenizer\.source_model=other\.model: it was trained with .*=gone\.model"):
        find_initial_checkpoint(config)


def test_other_languages_are_told(config: TrainConfig, tiny_run: Path, caplog: pytest.LogCaptureFixture) -> None:
    config.trainer.initialize_from = str(tiny_run)
    find_initial_checkpoint(config)
    assert not caplog.messages
    config.data.target_language = "de"
    find_initial_checkpoint(config)
    assert "translates en to fr, and this run is to translate en to de: unless that is meant, set" in caplog.text


def test_weights_of_another_model_are_refused_with_all_that_must_be_set(config: TrainConfig, tiny_run: Path) -> None:
    config.trainer.initialize_from = str(tiny_run)
    config.seed = 99
    assert find_initial_checkpoint(config) == tiny_run / "checkpoints" / "best"
    config.model.hidden_size, config.tokenizer.kind = 128, "bpe"
    with pytest.raises(
        UserError,
        match=r"cannot begin with the weights of .* with tokenizer\.kind=bpe model\.hidden_size=128: "
        r"it was trained with tokenizer\.kind=unigram model\.hidden_size=64; set",
    ):
        find_initial_checkpoint(config)
    config.trainer.initialize_from = "nowhere"
    with pytest.raises(UserError, match="no checkpoint at nowhere"):
        find_initial_checkpoint(config)
