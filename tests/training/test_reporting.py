"""The files, curves, pictures and lines that a run reports."""

import io
import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.summary.writer import event_file_writer

from nmt.alignment.weights import Alignment
from nmt.config.schema import ModelConfig, TrainConfig, TrainerConfig
from nmt.data.tables import ProgressLog
from nmt.errors import UserError
from nmt.evaluation.filmstrips import records_by_sentence, sentence_key
from nmt.evaluation.records import ALIGNMENTS, RECORDS, keep_records, read_records
from nmt.training.progress import Progress
from nmt.training.reporting import Reporter
from nmt.training.tensorboard import Sample, as_markdown
from nmt.translator import Translation
from tests.runs import wait_for

MEASURED = {
    "loss": 2.0,
    "perplexity": 7.39,
    "learning_rate": 1e-3,
    "gradient_norm": 0.7,
    "tokens_per_second": 1234.0,
}
A_MINUTE = TrainerConfig(max_minutes=61 / 60)
METRICS = {"loss": 1.5, "perplexity": 4.48, "bleu": 31.25, "chrf": 55.0, "aer": 0.12}


def sample(words: int = 2) -> Sample:
    weights = np.full((words, 3), 1 / 3, dtype=np.float32)
    target = [f"mot{number}" for number in range(words)]
    text = " ".join(target)
    translation = Translation(
        ["a", "b", "c"], target, weights, source="a b c", text=text, score=0, log_prob=0, pieces=[], words=([], [])
    )
    return Sample(translation, "x | y", Alignment(["a", "b", "c"], ["x", "y"], np.eye(3)[[0, 2]]))


def progress_at(step: int) -> Progress:
    """Half an epoch after the beginning, and no second."""
    progress = Progress(clock=lambda: 0.0)
    progress.step, progress.epochs = step, 0.5
    return progress


def report(
    run_dir: Path, console: Console, *, steps: tuple[int, ...] = (20, 40), after: int = 0, **config: Any
) -> None:
    with Reporter(run_dir, config=TrainConfig(**config), console=console) as reporter:
        logging.getLogger("nmt.data.cleaning").info("train: 3 of 10 pairs dropped")
        reporter.start("encoder 10\ndecoder 20", after)
        for step in steps:
            reporter.train(progress_at(step), MEASURED)
            reporter.validation(step=step, metrics=METRICS, samples=[sample(), sample(0)])
        reporter.finish({"bleu": 33.0, "aer": None, "signature": {"bleu": "case:mixed"}})


@pytest.fixture
def plain() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, width=80)


@pytest.fixture(autouse=True)
def files_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Number TensorBoard's files from 100: of one second and process, number 10 would be read before number 9."""
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(100))


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def records(run_dir: Path) -> list[dict[str, Any]]:
    lines = (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line, parse_constant=pytest.fail) for line in lines]


def load(run_dir: Path) -> EventAccumulator:
    return EventAccumulator(str(run_dir / "tensorboard")).Reload()


def test_the_console_and_the_log_tell_the_same(tmp_path: Path, plain: Console) -> None:
    report(tmp_path, plain, trainer=A_MINUTE)
    lines = printed(plain).splitlines()
    assert lines[:3] == ["train: 3 of 10 pairs dropped", "encoder 10", "decoder 20"]
    assert lines[3].startswith("update 20  epoch 0.50  loss 2.000  perplexity 7.39")
    assert lines[3].endswith("1234 tokens/s  1:01 left")
    assert lines[4] == "validation at update 20: loss 1.500  perplexity 4.48  bleu 31.25  chrf 55.00  aer 0.120"
    logged = (tmp_path / "train.log").read_text(encoding="utf-8").splitlines()
    assert [line.split(" INFO ")[1] for line in logged] == lines


def test_a_terminal_has_a_bar_instead_of_training_lines(tmp_path: Path) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=150)
    report(tmp_path, terminal, trainer=A_MINUTE)
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
        reporter.train(progress_at(1), {**MEASURED, "loss": float("nan"), "perplexity": float("inf")})
    assert (records(tmp_path)[0]["loss"], records(tmp_path)[0]["perplexity"]) == (None, None)


def test_tensorboard_has_curves_texts_and_heatmaps(tmp_path: Path, plain: Console) -> None:
    report(tmp_path, plain)
    board = load(tmp_path)
    train = {f"train/{name}" for name in MEASURED}
    assert set(board.Tags()["scalars"]) == train | {f"validation/{name}" for name in METRICS} | {"test/bleu"}
    assert [(point.step, point.value) for point in board.Scalars("validation/bleu")] == [(20, 31.25), (40, 31.25)]
    assert set(board.Tags()["images"]) == {"alignment/0: “a b c”", "alignment/1: “a b c”"}
    pictures = board.Images("alignment/0: “a b c”")
    assert [picture.step for picture in pictures] == [20, 40]
    assert pictures[0].encoded_image_string.startswith(b"\x89PNG")
    text = board.Tensors("samples/text_summary")[0].tensor_proto.string_val[0].decode()
    assert text.splitlines()[2:] == ["| a b c | mot0 mot1 | x \\| y |", "| a b c |  | x \\| y |"]


def test_no_picture_is_larger_than_one_can_look_at(tmp_path: Path, plain: Console) -> None:
    """A model that has learned little repeats a word until it is stopped, hundreds of times."""
    with Reporter(tmp_path, config=TrainConfig(), console=plain) as reporter:
        reporter.start("")
        reporter.samples(step=1, samples=[sample(400)])
    (picture,) = load(tmp_path).Images("alignment/0: “a b c”")
    (shown,) = alignments(tmp_path)
    assert (picture.width, len(shown["weights"])) == (350, 400)
    assert picture.height < 4_000


def test_every_curve_and_picture_is_described(tmp_path: Path, plain: Console) -> None:
    report(tmp_path, plain)
    descriptions: dict[str, str] = {}
    for file in (tmp_path / "tensorboard").iterdir():
        for record in RawEventFileLoader(str(file)).Load():
            for value in Event.FromString(record).summary.value:
                descriptions.setdefault(value.tag, value.metadata.summary_description)
                assert value.metadata.plugin_data.plugin_name in ("scalars", "images", "text", "hparams")
                assert value.metadata.data_class != 0 or value.tag.startswith("_hparams_/")
    assert "before clipping" in descriptions["train/gradient_norm"]
    assert descriptions["validation/aer"] == "AER, lower is better"
    assert "rows are the words translated to" in descriptions["alignment/0: “a b c”"]
    assert [tag for tag, text in descriptions.items() if not text and not tag.startswith("_hparams_")] == []


def test_hyperparameters_stay_in_the_run(tmp_path: Path, plain: Console) -> None:
    report(tmp_path, plain, model=ModelConfig(hidden_size=300, cell="lstm"))
    assert [path.is_file() for path in (tmp_path / "tensorboard").iterdir()] == [True]
    metadata = load(tmp_path).SummaryMetadata("_hparams_/session_start_info")
    start = HParamsPluginData.FromString(metadata.plugin_data.content).session_start_info
    assert start.hparams["model.hidden_size"].number_value == 300
    assert start.hparams["model.cell"].string_value == "lstm"
    assert set(start.hparams) == {"data.kind", "model.hidden_size", "model.cell"}


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


def test_a_finished_run_that_is_evaluated_again_has_one_end(tmp_path: Path, plain: Console) -> None:
    """The last scores count; TensorBoard, which keeps every point, gets them if they are others."""
    for bleu, speed in ((33.0, 5.0), (33.0, 6.0), (34.0, 5.0)):
        with Reporter(tmp_path, config=TrainConfig(), console=plain) as reporter:
            reporter.start("", 40)
            reporter.finish({"bleu": bleu, "sentences_per_second": speed})
    (end,) = records(tmp_path)
    assert (end["step"], end["bleu"]) == (40, 34.0)
    assert [point.value for point in load(tmp_path).Scalars("test/bleu")] == [33.0, 34.0]


def test_nothing_is_written_before_the_start(tmp_path: Path, plain: Console) -> None:
    def fail() -> None:
        with Reporter(tmp_path / "run", config=TrainConfig(), console=plain):
            logging.getLogger("nmt.text.tokenizer").warning("vocabulary lowered")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert printed(plain) == "warning: vocabulary lowered\n"
    assert not (tmp_path / "run").exists()


def test_a_phase_is_announced_while_it_takes_long(
    tmp_path: Path, plain: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.data.tables.INTERVAL", 0.05)
    monkeypatch.setattr("nmt.data.tables.MIN_LOGGED_SECONDS", 0.05)
    with Reporter(tmp_path, config=TrainConfig(), console=plain), ProgressLog("reading"):
        wait_for(lambda: bool(re.match(r"(reading: \d+ s\n){2}", printed(plain))), seconds=20)


def test_a_short_phase_is_not_announced(tmp_path: Path, plain: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.data.tables.MIN_LOGGED_SECONDS", 60.0)
    with Reporter(tmp_path, config=TrainConfig(), console=plain), ProgressLog("reading"):
        pass
    assert not printed(plain)


def test_logging_is_left_as_it_was(tmp_path: Path, plain: Console) -> None:
    logger = logging.getLogger("nmt")
    report(tmp_path, plain)
    assert (logger.level, logger.propagate, logger.handlers) == (logging.NOTSET, True, [])


def test_a_reporter_that_was_not_entered_can_be_closed(tmp_path: Path, plain: Console) -> None:
    Reporter(tmp_path, config=TrainConfig(), console=plain).log.close()  # as logging does when the interpreter ends
    assert logging.getLogger("nmt").level == logging.NOTSET


def test_marks_of_markdown_are_shown_as_they_are() -> None:
    shown = sample()._replace(reference="a*b*[c]`d`")
    assert as_markdown([shown]).splitlines()[-1].endswith("| a\\*b\\*\\[c\\]\\`d\\` |")


def test_a_bar_in_a_sentence_does_not_break_the_table() -> None:
    assert as_markdown([sample()]).splitlines()[-1] == "| a b c | mot0 mot1 | x \\| y |"


def test_the_board_shows_the_scores_of_the_test_split_and_not_its_settings(tmp_path: Path, plain: Console) -> None:
    with Reporter(tmp_path, config=TrainConfig(), console=plain) as reporter:
        reporter.start("")
        reporter.finish({"bleu": 33.0, "aer": 0.1, "beam_size": 5, "step": 40})
    tags = EventAccumulator(str(tmp_path / "tensorboard")).Reload().Tags()["scalars"]
    assert tags == ["test/bleu", "test/aer"]


def test_the_table_has_a_row_for_each_sentence() -> None:
    head, line, *rows = as_markdown([sample(1), sample(2)]).splitlines()
    assert (head, line, len(rows)) == ("| source | translation | reference |", "|---|---|---|", 2)


def alignments(run_dir: Path) -> list[dict[str, Any]]:
    lines = (run_dir / "alignments.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_alignments_are_kept_as_data(tmp_path: Path, plain: Console) -> None:
    report(tmp_path, plain, steps=(20,))
    first, second = alignments(tmp_path)
    assert (first["step"], first["sample"], second["sample"]) == (20, 0, 1)
    assert (first["source"], first["translation"], first["reference"]) == ("a b c", "mot0 mot1", "x | y")
    assert (first["source_words"], first["target_words"]) == (["a", "b", "c"], ["mot0", "mot1"])
    assert first["weights"] == [[0.333, 0.333, 0.333]] * 2
    assert (first["reference_words"], first["reference_weights"]) == (["x", "y"], [[1, 0, 0], [0, 0, 1]])
    assert (second["target_words"], second["weights"]) == ([], [])


def test_samples_of_an_update_are_reported_once(tmp_path: Path, plain: Console) -> None:
    """Those shown before the first validation may be of the update at which training ends."""
    with Reporter(tmp_path, config=TrainConfig(), console=plain) as reporter:
        reporter.start("")
        for step in (1, 3, 3):
            reporter.samples(step=step, samples=[sample()])
    with Reporter(tmp_path, config=TrainConfig(), console=plain) as reporter:
        reporter.start("", 3)
        reporter.validation(step=3, metrics=METRICS, samples=[sample()])
        reporter.samples(step=10, samples=[sample()])
    assert [each["step"] for each in alignments(tmp_path)] == [1, 3, 10]
    assert [each.step for each in load(tmp_path).Images("alignment/0: “a b c”")] == [1, 3, 10]


def test_samples_that_are_made_again_are_kept_once(tmp_path: Path, plain: Console) -> None:
    report(tmp_path, plain, steps=(20, 40, 60))
    report(tmp_path, plain, steps=(40, 60), after=20)
    assert [each["step"] for each in alignments(tmp_path)] == [20, 20, 40, 40, 60, 60]
    assert [each.step for each in load(tmp_path).Images("alignment/0: “a b c”")] == [20, 40, 60]


def test_the_film_is_drawn_at_the_end(tmp_path: Path, plain: Console) -> None:
    report(tmp_path / "one", plain, steps=(20,))
    assert not (tmp_path / "one" / "evaluation").exists()  # a filmstrip has two pictures at least
    report(tmp_path / "two", plain)
    assert (tmp_path / "two/evaluation/sharpening.png").read_bytes().startswith(b"\x89PNG")


def test_a_phase_has_a_bar_of_its_own_on_a_terminal(tmp_path: Path) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=150)
    with Reporter(tmp_path, config=TrainConfig(), console=terminal) as reporter:
        reporter.start("")
        with reporter.phase("validating", 8) as advance:
            advance(4)
            reporter.display.progress.refresh()
            assert "validating" in printed(terminal)
            assert "training" in printed(terminal)
        reporter.end_progress()
        before = len(printed(terminal))
        with reporter.phase("testing on test", 8) as advance:
            advance(8)
        logging.getLogger("nmt").info("done")
        after = printed(terminal)[before:]
    assert "testing on test" in after
    assert "training" not in after


def test_a_long_phase_says_how_far_it_is(tmp_path: Path, plain: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("nmt.training.console.time.monotonic", lambda: now)
    with Reporter(tmp_path, config=TrainConfig(), console=plain) as reporter:
        reporter.start("")
        with reporter.phase("validating", 100) as advance:
            advance(10)
            assert printed(plain) == ""
            now = 120.0
            advance(30)
            advance(1)
    assert printed(plain) == "validating: 40%  0:30 left\n"


def test_lines_that_are_no_records_are_dropped_when_a_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metrics.jsonl"
    wanted = lambda record: record["step"] <= 2  # noqa: E731
    keep_records(path, wanted)
    records = [b'{"step": 1, "event": "train"}\n', b'{"step": 1e999}\n', b"\xff\xfe\n", b"[" * 99_999 + b"\n"]
    records += [b'{"step": 1}\n', b'{"step": 3, "event": "train"}\n', b'{"step": 1, "event": "tr\xe1in"}\n', b'{"st']
    path.write_bytes(b"".join(records))
    assert [each["step"] for each in read_records(path)] == [1, 3]
    keep_records(path, wanted)
    assert path.read_bytes() == records[0]
    assert [each.getMessage() for each in caplog.records] == [f"{path}: lines that hold no record are dropped: 5"]
    keep_records(path, wanted)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("name", [RECORDS, ALIGNMENTS])
@pytest.mark.parametrize("is_link", [True, False])
def test_records_that_cannot_be_written_are_noticed_at_the_start(tmp_path: Path, name: str, is_link: bool) -> None:
    (tmp_path / name).symlink_to(tmp_path / "absent" / "x") if is_link else (tmp_path / name).mkdir()
    with (
        Reporter(tmp_path, config=TrainConfig()) as reporter,
        pytest.raises(UserError, match=rf"cannot write .*/{name}: .*; move away what is there, and start again"),
    ):
        reporter.start("")


@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_in_the_sample_alignments_harms_nothing(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int
) -> None:
    run = tmp_path_factory.mktemp("run")
    words = {"source_words": ["a", "b"], "reference_words": ["c", "d", "e"], "reference_weights": [[0.125, 0.875]] * 3}
    records = [{"step": step, "sample": number} | words for step in (1, 10) for number in (0, 1)]
    content = bytearray("".join(json.dumps(each) + "\n" for each in records).encode())
    content[place % len(content)] ^= 1 << bit
    (run / ALIGNMENTS).write_bytes(content)
    kept = read_records(run / ALIGNMENTS)
    assert len(kept) >= 2  # a line break more or less concerns two
    for frames in records_by_sentence(kept):
        for record in frames:
            assert sentence_key(record) == sentence_key(frames[0])
            assert np.shape(record["reference_weights"]) == (
                len(record["reference_words"]),
                len(record["source_words"]),
            )
            assert record["step"] > 0
