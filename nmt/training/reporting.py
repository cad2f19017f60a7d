"""Reports of a run: console and `train.log`, `metrics.jsonl`, TensorBoard."""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from rich.console import Console

from nmt.config.file import save_config
from nmt.config.schema import TrainConfig
from nmt.errors import writing
from nmt.evaluation.records import ALIGNMENTS, RECORDS, finite, keep_records, read_records
from nmt.evaluation.registry import METRICS, OF_THE_MACHINE, format_number
from nmt.training.board import Board, Sample, hyperparameters
from nmt.training.console import LIVE, LiveDisplay, Log, Phase, duration, unreported

logger = logging.getLogger(__name__)


@final
class Reporter:
    """Reports a run; use it as a context manager.

    Inside the context the log messages of all modules of nmt reach the console. `start` creates the files and writes
    earlier messages to `train.log`, so that a run that fails before leaves no files. A continued run appends to
    its files. On a terminal there is a live bar, elsewhere each report is a plain line.
    """

    def __init__(self, run_dir: Path, *, config: TrainConfig, console: Console | None = None) -> None:
        self.run_dir = run_dir
        self.config = config
        self.display = LiveDisplay(console or Console(stderr=True))
        self.phase: Phase = self.display.phase  # shows how far a validation or test has come
        self.log = Log(self.display)
        self.board: Board | None = None
        self.step = 0
        self.sampled = -1  # the last update whose samples were reported

    def __enter__(self) -> "Reporter":
        self.log.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.end_progress()
        self.log.close()
        if self.board is not None:
            self.board.close()

    def start(self, summary: str, step: int = 0) -> None:
        """Create or continue the files of the run, show the model's summary, and start the live bar.

        Records of updates after `step`, which are repeated, are dropped.
        """
        with writing(self.run_dir):
            self.run_dir.mkdir(parents=True, exist_ok=True)
            save_config(self.config, self.run_dir / "config.yaml")
            self.log.write_to(self.run_dir / "train.log")
            for name in (RECORDS, ALIGNMENTS):
                keep_records(self.run_dir / name, lambda record: record["step"] <= step)
        self.step = step
        self.sampled = max((each["step"] for each in read_records(self.run_dir / ALIGNMENTS)), default=-1)
        self.board = Board(self.run_dir / "tensorboard", after=step)
        for line in summary.splitlines():
            logger.info("%s", line)
        self.display.progress.start()

    def train(
        self, *, step: int, epoch: float, eta_seconds: float | None, share_done: float = 0.0, **measured: float
    ) -> None:
        """Report the updates since the last report: `measured` is what `Meter.read` returns, `share_done` 0 to 1."""
        self.step = step
        self.progress(step=step, epoch=epoch, eta_seconds=eta_seconds, share_done=share_done, **measured)
        skipped = measured.pop("skipped", 0.0)
        if skipped:
            measured["skipped"] = skipped
            logger.warning("updates skipped since the last report, their gradients not being finite: %d", skipped)
        self._record("train", {"epoch": epoch, **measured})
        self._board.scalars("train", measured, step)

    def progress(
        self, *, step: int, epoch: float, eta_seconds: float | None, share_done: float = 0.0, **measured: float
    ) -> None:
        """Show the same on the console and in `train.log` alone."""
        self.display.update(share_done, loss=measured["loss"], speed=measured["tokens_per_second"], eta=eta_seconds)
        line = "update %d  epoch %.2f  loss %.3f  perplexity %.2f  rate %.2e  norm %.2f  %.0f tokens/s  %s left"
        names = ("loss", "perplexity", "learning_rate", "gradient_norm", "tokens_per_second")
        values = (measured[name] for name in names)
        logger.info(line, step, epoch, *values, duration(eta_seconds), extra=LIVE)

    def validation(self, *, step: int, metrics: Mapping[str, float], samples: Sequence[Sample]) -> None:
        """Report the metrics of a validation, and translations and heatmaps of a few sentences."""
        self.step = step
        self.display.validated(metrics)
        shown = "  ".join(
            f"{name} {format_number(value, METRICS[name].table_display.digits)}" for name, value in metrics.items()
        )
        logger.info("validation at update %d: %s", step, shown)
        self._record("validation", metrics)
        self._board.scalars("validation", metrics, step)
        self.samples(step=step, samples=samples)

    def samples(self, *, step: int, samples: Sequence[Sample]) -> None:
        """Report translations and alignments of a few sentences, once for an update."""
        if step == self.sampled:
            return
        self.sampled = step
        self._board.samples(samples, step)
        if samples:
            lines = (json.dumps(as_record(step, *each)) for each in enumerate(samples))
            append(self.run_dir / ALIGNMENTS, "".join(f"{line}\n" for line in lines))

    def end_progress(self) -> None:
        """Remove the live bar, so that other output may follow."""
        self.display.progress.stop()
        self.display.progress.update(self.display.task, visible=False)

    def finish(self, final_metrics: Mapping[str, Any], notes: Sequence[str] = ()) -> None:
        """Record the scores of the test split together with the hyper-parameters; record and show notes to the user.

        They replace those recorded at the same update, because restarting a finished run evaluates it again.
        """
        scalars = {name: value for name, value in final_metrics.items() if type(value) in (int, float)}
        scores = {name: scalars[name] for name in METRICS if name in scalars}
        records = self.run_dir / RECORDS
        shown = [record for record in read_records(records) if self._is_end(record)]
        keep_records(records, lambda record: not self._is_end(record))
        self._record("final", {**scalars, "notes": [*notes]})
        for note in notes:
            logger.info("note: %s", note)
        if not any(same_scores(scores, record) for record in shown):  # TensorBoard cannot take back a point
            self._board.final(hyperparameters(self.config), scores, self.step)
        # Imported here because matplotlib takes 30 MiB, which only the process that reports needs.
        from nmt.evaluation.filmstrips import write_filmstrips

        picture = self.run_dir / "evaluation" / "sharpening.png"
        with writing(picture):
            write_filmstrips(read_records(self.run_dir / ALIGNMENTS), picture)

    def _is_end(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record has the scores of the test split at this update."""
        return (record["step"], record.get("event")) == (self.step, "final")

    @property
    def _board(self) -> "Board":
        assert self.board is not None, "report after start()"
        return self.board

    def _record(self, event: str, values: Mapping[str, Any]) -> None:
        record = {"event": event, "step": self.step, "time": round(time.time(), 3), **finite(values)}
        append(self.run_dir / RECORDS, json.dumps(record) + "\n")


def same_scores(scores: Mapping[str, float], others: Mapping[str, Any]) -> bool:
    """Return whether scores equal those of a record, ignoring metrics that depend on the machine."""
    return all(others.get(name) == value for name, value in scores.items() if name not in OF_THE_MACHINE)


def append(path: Path, text: str) -> None:
    """Add lines to a file of records, or raise UserError."""
    advice = "free some space, and continue the run with the same run_dir"
    with writing(path, advice), path.open("a", encoding="utf-8") as file:
        file.write(text)


def as_record(step: int, number: int, sample: Sample) -> dict[str, Any]:
    """Return a line of `alignments.jsonl`: the attention to a translation, and to the reference; three digits."""
    shown, forced = sample.translation, sample.forced
    is_comparable = forced is not None and forced.source_words == shown.source_words
    return {
        "step": step,
        "sample": number,
        "source": shown.source,
        "translation": shown.text,
        "reference": sample.reference,
        "source_words": shown.source_words,
        "target_words": shown.target_words,
        "weights": np.round(shown.weights.astype(float), 3).tolist(),
        "reference_words": forced.target_words if forced is not None else [],
        "reference_weights": np.round(forced.weights.astype(float), 3).tolist() if forced and is_comparable else [],
    }


@final
class NullReporter:
    """Takes the place of a `Reporter` in ranks other than 0: it reports nothing and silences log messages."""

    def __enter__(self) -> "NullReporter":
        self.level = logging.getLogger("nmt").level
        logging.getLogger("nmt").setLevel(logging.CRITICAL + 1)
        return self

    def __exit__(self, *error: object) -> None:
        logging.getLogger("nmt").setLevel(self.level)

    def ignore(self, *values: Any, **named: Any) -> None: ...

    start = train = progress = validation = samples = end_progress = ignore
    phase: Phase = staticmethod(unreported)
