"""The files, curves, pictures and lines that a run reports."""

import io
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from nmt.config.schema import TrainConfig
from nmt.training.board import Sample, as_markdown, hyperparameters
from nmt.training.console import duration
from nmt.training.reporting import Reporter, drop_records
from nmt.translator import Translation

TRAIN: dict[str, Any] = {
    "epoch": 0.5,
    "loss": 2.0,
    "perplexity": 7.39,
    "learning_rate": 1e-3,
    "gradient_norm": 0.7,
    "tokens_per_second": 1234.0,
    "eta_seconds": 61.0,
}
METRICS = {"loss": 1.5, "perplexity": 4.48, "bleu": 31.25, "chrf": 55.0, "aer": 0.12}


def sample(words: int = 2) -> Sample:
    weights = np.full((words, 3), 1 / 3, dtype=np.float32)
    target = [f"mot{number}" for number in range(words)]
    text = " ".join(target)
    translation = Translation(
        ["a", "b", "c"], target, weights, source="a b c", text=text, score=0, log_prob=0, pieces=[]
    )
    return Sample(translation, "x | y")


def report(run_dir: Path, console: Console, *, steps: tuple[int, ...] = (20, 40), after: int = 0) -> None:
    with Reporter(run_dir, config=TrainConfig(), console=console) as reporter:
        logging.getLogger("nmt.data.cleaning").info("train: 3 of 10 pairs dropped")
        reporter.start("encoder 10\ndecoder 20", after)
        for step in steps:
            reporter.train(step=step, share_done=0.5, **TRAIN)
            reporter.validation(step=step, metrics=METRICS, samples=[sample(), sample(0)])
        reporter.finish({"bleu": 33.0, "aer": None, "signature": {"bleu": "case:mixed"}})


@pytest.fixture
def plain() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, width=80)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def records(run_dir: Path) -> list[dict[str, Any]]:
    lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line, parse_constant=pytest.fail) for line in lines]


def load(run_dir: Path) -> EventAccumulator:
    return EventAccumulator(str(run_dir / "tensorboard")).Reload()


def test_the_console_and_the_log_tell_the_same(tmp_path: Path, plain: Console) -> None:
    report(tmp_path, plain)
    lines = printed(plain).splitlines()
    assert lines[:3] == ["train: 3 of 10 pairs dropped", "encoder 10", "decoder 20"]
    assert lines[3].startswith("update 20  epoch 0.50  loss 2.000  perplexity 7.39")
    assert lines[3].endswith("1234 tokens/s  1:01 left")
    assert lines[4] == "validation at update 20: loss 1.500  perplexity 4.48  bleu 31.25  chrf 55.00  aer 0.120"
    logged = (tmp_path / "train.log").read_text(encoding="utf-8").splitlines()
    assert [line.split(" INFO ")[1] for line in logged] == lines


def test_a_terminal_has_a_bar_instead_of_training_lines(tmp_path: Path) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=150)
    report(tmp_path, terminal)
    text = printed(terminal)
    assert "validation at update 20" in text
    assert "update 20  epoch" not in text
    assert "update 20  epoch" in (tmp_path / "train.log").read_text(encoding="utf-8")
    for shown in ("loss 2.000", "BLEU 31.25", "1,234 tokens/s", "ETA 1:01"):
        assert shown in text


def test_the_records(tmp_path: Path, plain: Console) -> None:
    report(tmp_path, plain, steps=(20,))
    train, validation, final = records(tmp_path)
    assert (train["event"], train["step"], train["loss"], train["epoch"]) == ("train", 20, 2.0, 0.5)
    assert (validation["event"], validation["step"], validation["bleu"]) == ("validation", 20, 31.25)
    assert {name: final[name] for name in ("event", "step", "bleu")} == {"event": "final", "step": 20, "bleu": 33.0}


def test_a_loss_that_is_not_finite_is_still_json(tmp_path: Path, plain: Console) -> None:
    with Reporter(tmp_path, config=TrainConfig(), console=plain) as reporter:
        reporter.start("")
        reporter.train(step=1, **{**TRAIN, "loss": float("nan"), "perplexity": float("inf"), "eta_seconds": None})
    assert (records(tmp_path)[0]["loss"], records(tmp_path)[0]["perplexity"]) == (None, None)


def test_tensorboard_has_curves_texts_and_heatmaps(tmp_path: Path, plain: Console) -> None:
    report(tmp_path, plain)
    board = load(tmp_path)
    train = {f"train/{name}" for name in TRAIN if name not in ("epoch", "eta_seconds")}
    assert set(board.Tags()["scalars"]) == train | {f"validation/{name}" for name in METRICS} | {"test/bleu"}
    assert [(point.step, point.value) for point in board.Scalars("validation/bleu")] == [(20, 31.25), (40, 31.25)]
    assert set(board.Tags()["images"]) == {"alignment/0", "alignment/1"}
    pictures = board.Images("alignment/0")
    assert [picture.step for picture in pictures] == [20, 40]
    assert pictures[0].encoded_image_string.startswith(b"\x89PNG")
    text = board.Tensors("samples/0/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "mot0 mot1" in text


def test_hyperparameters_stay_in_the_run(tmp_path: Path, plain: Console) -> None:
    report(tmp_path, plain)
    assert [path.is_file() for path in (tmp_path / "tensorboard").iterdir()] == [True]
    metadata = load(tmp_path).SummaryMetadata("_hparams_/session_start_info")
    start = HParamsPluginData.FromString(metadata.plugin_data.content).session_start_info
    assert start.hparams["model.hidden_size"].number_value == 512
    assert start.hparams["model.cell"].string_value == "gru"
    assert "run_dir" not in start.hparams


def test_a_run_that_goes_on_appends(tmp_path: Path, plain: Console) -> None:
    report(tmp_path, plain, steps=(20,))
    report(tmp_path, plain, steps=(40,), after=20)
    assert [record["step"] for record in records(tmp_path)] == [20, 20, 20, 40, 40, 40]
    assert (tmp_path / "train.log").read_text(encoding="utf-8").count("encoder 10") == 2
    assert [point.step for point in load(tmp_path).Scalars("train/loss")] == [20, 40]


def test_updates_that_are_made_again_are_reported_once(tmp_path: Path, plain: Console) -> None:
    report(tmp_path, plain, steps=(20, 40, 60))
    report(tmp_path, plain, steps=(40, 60), after=20)
    assert [record["step"] for record in records(tmp_path)] == [20, 20, 40, 40, 60, 60, 60]


def test_nothing_is_written_before_the_start(tmp_path: Path, plain: Console) -> None:
    def fail() -> None:
        with Reporter(tmp_path / "run", config=TrainConfig(), console=plain):
            logging.getLogger("nmt.text.tokenizer").warning("vocabulary lowered")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert printed(plain) == "warning: vocabulary lowered\n"
    assert not (tmp_path / "run").exists()


def test_logging_is_left_as_it_was(tmp_path: Path, plain: Console) -> None:
    logger = logging.getLogger("nmt")
    report(tmp_path, plain)
    assert (logger.level, logger.propagate, logger.handlers) == (logging.NOTSET, True, [])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "?"), (0.2, "0:00"), (59.6, "1:00"), (61, "1:01"), (3599.7, "1:00:00"), (7325, "2:02:05")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_hyperparameters_are_numbers_and_strings() -> None:
    found = hyperparameters(TrainConfig())
    assert found["data.kind"] == "grammar"
    assert found["model.input_feeding"] == "True"
    assert found["optimizer.betas"] == "[0.9, 0.98]"
    assert "trainer.max_steps" not in found


def test_a_bar_in_a_sentence_does_not_break_the_table() -> None:
    assert as_markdown(sample()).splitlines()[-1] == "| reference | x \\| y |"


def test_the_board_shows_the_scores_of_the_test_split_and_not_its_settings(tmp_path: Path, plain: Console) -> None:
    with Reporter(tmp_path, config=TrainConfig(), console=plain) as reporter:
        reporter.start("")
        reporter.finish({"bleu": 33.0, "aer": 0.1, "beam_size": 5, "step": 40})
    tags = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Tags()["scalars"]
    assert tags == ["test/bleu", "test/aer"]


def test_the_source_heads_the_table() -> None:
    assert as_markdown(sample(1)).splitlines()[:2] == ["| source | a b c |", "|---|---|"]


def test_lines_that_are_no_records_are_dropped_when_a_run_goes_on(tmp_path: Path) -> None:
    records = [b'{"step": 1}\n', b'{"step": 1e999}\n', b"\xff\xfe\n", b"[" * 99_999 + b"\n", b'{"step": 3}\n', b'{"st']
    (tmp_path / "metrics.jsonl").write_bytes(b"".join(records))
    drop_records(tmp_path / "metrics.jsonl", after=2)
    assert (tmp_path / "metrics.jsonl").read_bytes() == records[0]
