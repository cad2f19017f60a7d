"""`python -m nmt.train`: the files of a run, and resuming one that was stopped."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer

from nmt.config.file import load_config
from nmt.data.corpus import load_split
from nmt.errors import UserError
from nmt.models.checkpoint import find_checkpoint
from nmt.training.run import evaluate_best_checkpoint, link_latest
from nmt.training.run import train as train_here
from nmt.training.trainer import Trainer
from tests.runs import QUIET, ROOT, records, training_state, wait_for
from tests.template_pairs import write_template_corpus

# Everything that draws random numbers or keeps a state over updates is on.
STATEFUL = (
    *("tokenizer.sampling=0.2", "model.dropout=0.3", "model.word_dropout=0.1", "model.locked_dropout=true"),
    *("trainer.consistency=2", "trainer.ema_decay=0.9", "trainer.accumulate=2"),
)


@pytest.fixture
def train(call: Callable[..., Any], tmp_path: Path, tiny_options: list[str]) -> Callable[..., Path]:
    def run(run_dir: str, *options: str) -> Path:
        done = call("train", f"run_dir={run_dir}", *tiny_options, *options)
        assert done.returncode == 0, done.stderr
        return tmp_path / run_dir

    return run


def losses(run: Path) -> list[tuple[int, float]]:
    return [(record["step"], record["loss"]) for record in records(run, "train")]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / "last" / "model.safetensors")


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_a_run_leaves_all_that_the_contract_names(tiny_run: Path) -> None:
    files = {str(path.relative_to(tiny_run)) for path in tiny_run.rglob("*") if path.is_file()}
    checkpoint = {"model.safetensors", "config.yaml", "joint.model", "manifest.json"}
    evaluation = {"metrics.json", "hypotheses.txt", "alignments.pharaoh", "alignments.words", "report.html"}
    expected = {".lock", "config.yaml", "train.log", "metrics.jsonl", "alignments.jsonl"}
    expected |= {"checkpoints/last/training_state.pt", "checkpoints/best/README.md"}
    expected |= {f"checkpoints/{name}/{file}" for name in ("best", "last") for file in checkpoint}
    expected |= {f"evaluation/{split}/{file}" for split in ("test", "test_long") for file in evaluation}
    pictures = {name for name in files if name.endswith(".png")}
    events = {name for name in files if name.startswith("tensorboard/events.out.tfevents.")}
    assert files == expected | pictures | events
    assert len(events) == 1
    single = {"evaluation/sharpening.png", "checkpoints/best/alignment.png"}
    assert single <= pictures
    folders = {name.rpartition("/")[0] for name in pictures - single}
    assert folders == {f"evaluation/{split}/heatmaps" for split in ("test", "test_long")}


def test_others_may_read_what_a_run_leaves(tiny_run: Path) -> None:
    """As far as the umask of the user allows: safetensors writes for the owner alone."""
    for file in tiny_run.rglob("*"):
        assert file.is_dir() or file.stat().st_mode == (tiny_run / "config.yaml").stat().st_mode, file


def test_the_configuration_of_the_run_is_that_of_its_checkpoints(tiny_run: Path) -> None:
    config = load_config(tiny_run / "config.yaml")
    assert (config.model.hidden_size, config.trainer.metric, config.schedule.kind) == (64, "loss", "constant")
    for name in ("best", "last"):
        assert load_config(tiny_run / "checkpoints" / name / "config.yaml") == config


def test_the_loss_falls_and_is_recorded(tiny_run: Path) -> None:
    train, validation = records(tiny_run, "train"), records(tiny_run, "validation")
    assert [record["step"] for record in train] == [20, 40, 60, 80, 100]
    assert [record["step"] for record in validation] == [50, 100]
    assert train[-1]["loss"] < 0.8 * train[0]["loss"]
    assert validation[1]["loss"] < validation[0]["loss"]
    assert {"perplexity", "bleu", "chrf", "aer"} <= validation[0].keys()
    assert {"perplexity", "learning_rate", "gradient_norm", "tokens_per_second", "epoch"} <= train[0].keys()
    (final,) = records(tiny_run, "final")
    assert final["bleu"] == json.loads((tiny_run / "evaluation/test/metrics.json").read_text())["bleu"]


def test_tensorboard_holds_curves_heatmaps_text_and_hyperparameters(tiny_run: Path) -> None:
    events = EventAccumulator(str(tiny_run / "tensorboard"), size_guidance={"images": 0}).Reload()
    tags = events.Tags()
    samples = [json.loads(line) for line in (tiny_run / "alignments.jsonl").read_text(encoding="utf-8").splitlines()]
    names = {f"alignment/{each['sample']}: “{each['source']}”" for each in samples}
    assert set(tags["images"]) == names
    assert len(names) == 2
    steps = [1, 10, 30, 50, 100]  # before the first validation, and at each
    for name in names:
        assert [picture.step for picture in events.Images(name)] == steps
    assert [each["step"] for each in samples if each["sample"] == 0] == steps
    pictures = events.Images(names.pop())
    assert all(picture.encoded_image_string.startswith(b"\x89PNG") for picture in pictures)
    curves = {"loss", "perplexity", "learning_rate", "gradient_norm", "tokens_per_second"}
    assert {f"train/{name}" for name in curves} <= set(tags["scalars"])
    measured = ("loss", "perplexity", "bleu", "chrf", "aer")
    assert {f"validation/{name}" for name in measured} | {"test/bleu", "test/aer"} <= set(tags["scalars"])
    assert "samples/text_summary" in tags["tensors"]
    assert {"_hparams_/experiment", "_hparams_/session_start_info"} <= set(events.PluginTagToContent("hparams"))


def test_standard_output_is_the_scores_and_where_to_look(tiny_run: Path) -> None:
    output = (tiny_run.parent / "output.txt").read_text(encoding="utf-8")
    assert "BLEU" in output
    assert "evaluation/test/report.html" in output
    log = (tiny_run / "train.log").read_text(encoding="utf-8")
    assert "kept 300 of 300 pairs" in log
    assert "parameters" in log
    assert "tensorboard --logdir" in log


def test_training_goes_on_exactly_where_it_stopped(
    train: Callable[..., Path], command: Callable[..., Any], tmp_path: Path, tiny_options: list[str]
) -> None:
    options = (*STATEFUL, *QUIET)
    straight = train("straight", *options, "trainer.max_steps=8")
    parted = train("parted", *options, "trainer.max_steps=4")
    assert training_state(parted)["progress"]["step"] == 4
    assert not same(weights(parted), weights(straight))
    # In another process, where nothing can be left over from before.
    done = command("train", "run_dir=parted", *tiny_options, *options, "trainer.max_steps=8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "continuing from parted/checkpoints/last at update 4" in done.stderr
    assert same(weights(parted), weights(straight))
    states = training_state(parted), training_state(straight)
    assert same(*(each["average"] for each in states))
    for name in ("loader", "schedule"):
        assert states[0][name] == states[1][name]
    assert losses(parted) == losses(straight)


def test_updates_that_a_crash_lost_are_recorded_once(train: Callable[..., Path]) -> None:
    run = train("run", *QUIET, "trainer.max_steps=3")
    once = losses(run)
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:  # as if it had gone on for a while
        file.writelines(json.dumps({"event": "train", "step": step, "loss": 9.0}) + "\n" for step in (4, 5))
        file.write('{"event": "train", "st')
    train("run", *QUIET, "trainer.max_steps=5")
    found = losses(run)
    assert [step for step, _ in found] == [1, 2, 3, 4, 5]
    assert found[:3] == once
    assert all(loss < 9.0 for _, loss in found)
    points = EventAccumulator(str(run / "tensorboard")).Reload().Scalars("train/loss")
    assert [point.step for point in points] == [1, 2, 3, 4, 5]


def test_a_run_is_not_trained_twice_against_the_users_will(
    tiny_run: Path, tiny_options: list[str], tmp_path: Path, call: Callable[..., Any]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in tiny_run.rglob("*") if path.name != ".lock"}
    done = call("train", f"run_dir={tiny_run}", *tiny_options, "trainer.max_steps=120", "resume=never")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {tiny_run} already holds a trained run: ")
    assert done.stderr.count("\n") == 1
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_state_is_told_in_one_line(
    tiny_run: Path, tiny_options: list[str], tmp_path: Path, call: Callable[..., Any]
) -> None:
    run = shutil.copytree(tiny_run, tmp_path / "run")
    file = run / "checkpoints/last/training_state.pt"
    content = torch.load(file, weights_only=True)
    del content["loader"]
    torch.save(content, file)
    file.with_name("manifest.json").unlink()
    done = call("train", "run_dir=run", *tiny_options, "trainer.max_steps=120")
    assert done.returncode == 2
    message = "error: cannot continue from run/checkpoints/last/training_state.pt: it is damaged, or another version's"
    assert done.stderr.splitlines()[-1].startswith(f"{message} (KeyError: 'loader')")
    assert "Traceback" not in done.stderr


def test_an_interrupted_run_can_be_continued(
    train: Callable[..., Path], tiny_options: list[str], tmp_path: Path
) -> None:
    endless = ("trainer.max_steps=1000000", "trainer.validate_every_steps=1000000")
    line = [sys.executable, "-m", "nmt.train", "run_dir=run", *tiny_options, *QUIET, *endless]
    process = subprocess.Popen(
        line,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Shells start background jobs with SIGINT ignored, and children inherit it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    run = tmp_path / "run"
    metrics = run / "metrics.jsonl"
    wait_for(lambda: metrics.exists() or process.poll() is not None, seconds=120)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.endswith("interrupted\n")
    assert "Traceback" not in errors
    assert output == ""
    assert not (run / "checkpoints" / "best").exists()
    stopped = training_state(run)["progress"]["step"]
    assert stopped == records(run, "train")[-1]["step"]
    train("run", *QUIET, f"trainer.max_steps={stopped + 1}")
    assert [record["step"] for record in records(run, "train")] == list(range(1, stopped + 2))
    assert (run / "checkpoints" / "best").exists()


def test_a_reader_of_messages_that_goes_away_is_told_by_the_status(tiny_options: list[str], tmp_path: Path) -> None:
    """As in `nmt train ... 2>&1 | head -1`."""
    line = [sys.executable, "-m", "nmt.train", "run_dir=run", *tiny_options, *QUIET, "trainer.max_steps=1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(line, cwd=tmp_path, env=environment, stdout=writer, stderr=writer)
    finally:
        os.close(writer)
    assert done.returncode == 141


def test_a_sweep_makes_a_run_of_every_job(train: Callable[..., Path], tmp_path: Path) -> None:
    folder = train("sweep", *QUIET, "trainer.max_steps=1", "model=bahdanau,luong", "-m")
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {"0", "1"}
    decoders = [load_config(folder / job / "checkpoints/best/config.yaml").model.decoder for job in ("0", "1")]
    assert decoders == ["bahdanau", "luong"]
    assert latest_run(tmp_path) == folder / "1"


def test_the_final_evaluation_scores_as_configured(tiny_run: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_run / "checkpoints" / "best", tmp_path / "checkpoints" / "best")
    config = load_config(tiny_run / "config.yaml")
    tests = {"test": load_split(config.data, "test")}
    plain = evaluate_best_checkpoint(config, tmp_path, tests)
    assert (plain["bleu_tokenize"], plain["lowercase"]) == ("13a", False)
    config.bleu_tokenize, config.lowercase = "char", True
    changed = evaluate_best_checkpoint(config, tmp_path, tests)
    assert (changed["bleu_tokenize"], changed["lowercase"]) == ("char", True)
    assert "tok:char" in changed["signature"]["bleu"]


def test_latest_points_to_the_newest_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    latest = tmp_path / "outputs/latest"
    for run in ("outputs/2024-01-01/10-00-00", "elsewhere/run"):
        (tmp_path / run).mkdir(parents=True)
        link_latest(Path(run))
        assert latest_run(tmp_path) == tmp_path / run
        assert not any(link.readlink().is_absolute() for link in latest.iterdir())
    link_latest(Path("outputs/latest"))
    assert latest_run(tmp_path) == tmp_path / "elsewhere/run"
    assert {path.name for path in latest.parent.iterdir()} == {"latest", "2024-01-01"}


def latest_run(folder: Path) -> Path:
    """Return the run that outputs/latest leads to, after a look at all its links."""
    runs = {link.resolve().parent for link in (folder / "outputs/latest").iterdir() if link.is_symlink()}
    assert len(runs) == 1
    return runs.pop()


def test_tensorboard_finds_every_run_once(tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_run, tmp_path / "outputs/2024-01-01/10-00-00")
    link_latest(Path("outputs/2024-01-01/10-00-00"))
    found = EventMultiplexer().AddRunsFromDirectory("outputs")
    assert list(found.Runs()) == ["2024-01-01/10-00-00/tensorboard"]
    assert find_checkpoint("outputs/latest").resolve() == tmp_path / "outputs/2024-01-01/10-00-00/checkpoints/best"


@pytest.fixture
def newest_run(tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """outputs/run of the working directory, which outputs/latest leads to."""
    monkeypatch.chdir(tmp_path)
    run = shutil.copytree(tiny_run, tmp_path / "outputs/run")
    link_latest(run)
    return run


def test_the_newest_run_can_be_continued_by_that_name(newest_run: Path, tmp_path: Path) -> None:
    config = load_config(newest_run / "config.yaml")
    config.run_dir, config.trainer.evaluate, config.trainer.max_steps = "outputs/latest", False, 101
    assert train_here(config, latest=True) == Path("outputs/run")
    assert latest_run(tmp_path) == newest_run
    assert training_state(newest_run)["progress"]["step"] == 101


def test_links_to_a_run_that_was_moved_begin_no_other(newest_run: Path, tmp_path: Path) -> None:
    config = load_config(newest_run / "config.yaml")
    config.run_dir = "outputs/latest"
    newest_run.rename(tmp_path / "moved")
    with pytest.raises(UserError, match="outputs/latest leads to outputs/run, which is not there: give run_dir the"):
        train_here(config, latest=True)
    assert not newest_run.exists()


def test_a_run_whose_checkpoints_lie_elsewhere_goes_on_in_its_own_folder(tiny_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(tiny_run, tmp_path / "run")
    (tmp_path / "large").mkdir()
    (run / "checkpoints").rename(tmp_path / "large/checkpoints")
    (run / "checkpoints").symlink_to(tmp_path / "large/checkpoints")
    before = (run / "metrics.jsonl").read_bytes()
    config = load_config(run / "config.yaml")
    config.run_dir, config.trainer.evaluate, config.trainer.max_steps = str(run), False, 101
    assert train_here(config) == run
    assert training_state(run)["progress"]["step"] == 101
    assert (run / "metrics.jsonl").read_bytes().startswith(before)
    assert [path.name for path in (tmp_path / "large").iterdir()] == ["checkpoints"]


def test_test_text_is_read_once(call: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it may come from a pipe, or be deleted while the run trains."""
    (tmp_path / "text").mkdir()
    write_template_corpus(tmp_path / "text", train=60, validation=5, test=5)
    files = [
        f"data.{split}.{side}=text/{split}.{suffix}"
        for split in ("train", "validation", "test")
        for side, suffix in (("source", "en"), ("target", "zh"))
    ]
    fit = Trainer.fit

    def unlinked(trainer: Trainer) -> None:
        shutil.rmtree(tmp_path / "text")
        fit(trainer)

    monkeypatch.setattr(Trainer, "fit", unlinked)
    done = call("train", "data=text", *files, "run_dir=run", "trainer.max_steps=2", "tokenizer.vocab_size=400")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/evaluation/test/metrics.json").is_file()


def test_a_link_of_an_earlier_version_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs/old").mkdir(parents=True)
    (tmp_path / "outputs/latest").symlink_to("old")
    link_latest(Path("outputs/new"))
    assert latest_run(tmp_path) == tmp_path / "outputs/new"
    assert (tmp_path / "outputs/old").is_dir()


def test_only_the_command_makes_its_run_the_latest(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study's runs, or a benchmark's, are not what one wants to translate with."""
    monkeypatch.chdir(tmp_path)
    run = shutil.copytree(tiny_run, tmp_path / "run")
    config = load_config(run / "config.yaml")
    config.run_dir, config.trainer.evaluate = str(run), False
    train_here(config)
    assert not (tmp_path / "outputs").exists()
    train_here(config, latest=True)
    assert latest_run(tmp_path) == run


def test_a_real_folder_named_latest_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs/latest").mkdir(parents=True)
    (tmp_path / "outputs/latest/mine").touch()
    link_latest(Path("run"))
    assert not (tmp_path / "outputs/latest").is_symlink()
    assert [each.name for each in (tmp_path / "outputs/latest").iterdir()] == ["mine"]


def test_a_run_does_not_need_a_place_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The working directory has something else in the place of outputs/."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outputs").touch()
    link_latest(tmp_path / "elsewhere" / "run")
    assert "outputs/latest does not lead to this run: Not a directory" in caplog.text
