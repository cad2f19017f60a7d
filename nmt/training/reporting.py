"""Reports of a run: console and `train.log`, `metrics.jsonl`, TensorBoard."""

import contextlib
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
from nmt.errors import write_errors
from nmt.evaluation.records import ALIGNMENTS, RECORDS, finite, keep_records, read_records
from nmt.evaluation.registry import METRICS, OF_THE_MACHINE, format_number
from nmt.formats import duration
from nmt.training.console import SHOWN_BY_BAR, LiveDisplay, LogHandler, Phase, silent_phase
from nmt.training.progress import Progress, fraction_done, seconds_left
from nmt.training.tensorboard import Sample, TensorBoard, hyperparameters

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
        self.display = LiveDisplay(console)
        self.phase: Phase = self.display.phase  # shows how far a validation or test has come
        self.log = LogHandler(self.display)
        self.open_files = contextlib.ExitStack()
        self.step = 0
        self.samples_step = -1  # the last update whose samples were reported

    def __enter__(self) -> "Reporter":
        self.log.open()
        return self

    def __exit__(self, *error: object) -> None:
        self.end_progress()
        self.log.close()
        self.open_files.close()

    def start(self, summary: str, step: int = 0) -> None:
        """Create or continue the files of the run, show the model's summary, and start the live bar.

        Records of updates after `step`, which are repeated, are dropped.
        """
        with write_errors(self.run_dir):
            self.run_dir.mkdir(parents=True, exist_ok=True)
            save_config(self.config, self.run_dir / "config.yaml")
            self.log.write_to(self.run_dir / "train.log")
        for path in (self.run_dir / RECORDS, self.run_dir / ALIGNMENTS):
            keep_records(path, lambda record: record["step"] <= step)
            if path.exists() or path.is_symlink():
                append(path, "", "move away what is there, and start again")  # it can be written, also later
        self.step = step
        self.samples_step = max((record["step"] for record in read_records(self.run_dir / ALIGNMENTS)), default=-1)
        self.tensorboard = TensorBoard(self.run_dir / "tensorboard", after=step)
        self.open_files.callback(self.tensorboard.close)
        for line in summary.splitlines():
            logger.info("%s", line)
        self.display.progress.start()

    def train(self, progress: Progress, measured: Mapping[str, float]) -> None:
        """Report the updates since the last report; `measured` is what `Meter.measure` returns."""
        self.step = progress.step
        self.progress(progress, measured)
        measured = {name: value for name, value in measured.items() if value or name != "skipped"}
        if "skipped" in measured:
            logger.warning(
                "updates skipped since the last report, their gradients not being finite: %d", measured["skipped"]
            )
        self._record("train", {"epoch": progress.epochs, **measured})
        self.tensorboard.scalars("train", measured, self.step)

    def progress(self, progress: Progress, measured: Mapping[str, float]) -> None:
        """Show the same on the console and in `train.log` alone."""
        done, left = fraction_done(progress, self.config.trainer), seconds_left(progress, self.config.trainer)
        loss, speed = f"loss {measured['loss']:.3f}", f"{measured['tokens_per_second']:,.0f} tokens/s"
        self.display.show(completed=min(1.0, done), loss=loss, speed=speed, eta=f"ETA {duration(left)}")
        line = "update %d  epoch %.2f  loss %.3f  perplexity %.2f  rate %.2e  norm %.2f  %.0f tokens/s  %s left"
        names = ("loss", "perplexity", "learning_rate", "gradient_norm", "tokens_per_second")
        values = (measured[name] for name in names)
        logger.info(line, progress.step, progress.epochs, *values, duration(left), extra=SHOWN_BY_BAR)

    def validation(
        self, *, step: int, metrics: Mapping[str, float], samples: Sequence[Sample], digest: str | None = None
    ) -> None:
        """Report the metrics of a validation, and translations and heatmaps of a few sentences.

        Values are compared only with those of the same `digest`, that of the text and the settings.
        """
        self.step = step
        if "bleu" in metrics:
            self.display.show(quality=f"BLEU {metrics['bleu']:.2f}")
        values = "  ".join(
            f"{name} {format_number(value, METRICS[name].table_display.digits)}" for name, value in metrics.items()
        )
        logger.info("validation at update %d: %s", step, values)
        self._record("validation", {**metrics, "digest": digest})
        self.tensorboard.scalars("validation", metrics, step)
        self.samples(step=step, samples=samples)

    def samples(self, *, step: int, samples: Sequence[Sample]) -> None:
        """Report translations and alignments of a few sentences, once for an update."""
        if step == self.samples_step:
            return
        self.samples_step = step
        self.tensorboard.samples(samples, step)
        if samples:
            lines = (json.dumps(as_record(step, number, sample)) for number, sample in enumerate(samples))
            append(self.run_dir / ALIGNMENTS, "".join(f"{line}\n" for line in lines))

    def end_progress(self) -> None:
        """Remove the live bar, so that other output may follow."""
        self.display.progress.stop()
        self.display.show(visible=False)

    def finish(self, final_metrics: Mapping[str, Any], notes: Sequence[str] = ()) -> None:
        """Record the scores of the test split together with the hyper-parameters; record and show notes to the user.

        They replace those recorded at the same update, because restarting a finished run evaluates it again.
        """
        scalars = {name: value for name, value in final_metrics.items() if type(value) in (int, float)}
        scores = {name: scalars[name] for name in METRICS if name in scalars}
        path = self.run_dir / RECORDS
        earlier = [record for record in read_records(path) if self._is_final(record)]
        keep_records(path, lambda record: not self._is_final(record))
        self._record("final", {**scalars, "notes": [*notes]})
        for note in notes:
            logger.info("note: %s", note)
        of_the_model = {name: value for name, value in scores.items() if name not in OF_THE_MACHINE}
        # TensorBoard cannot take back a point.
        if not any(of_the_model.items() <= record.items() for record in earlier):
            self.tensorboard.final(hyperparameters(self.config), scores, self.step)
        picture = self.run_dir / "evaluation" / "sharpening.png"
        with write_errors(picture):
            if alignments := read_records(self.run_dir / ALIGNMENTS):
                # Imported here because matplotlib takes 30 MiB, which only a process that draws needs.
                from nmt.evaluation.filmstrips import write_filmstrips

                write_filmstrips(alignments, picture)

    def _is_final(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record has the scores of the test split at this update."""
        return (record["step"], record.get("event")) == (self.step, "final")

    def _record(self, event: str, values: Mapping[str, Any]) -> None:
        record = {"event": event, "step": self.step, "time": round(time.time(), 3), **finite(values)}
        append(self.run_dir / RECORDS, json.dumps(record) + "\n")


def append(path: Path, text: str, advice: str = "free some space, and continue the run with the same run_dir") -> None:
    """Add lines to a file of records, or raise UserError with an advice."""
    with write_errors(path, advice), path.open("a", encoding="utf-8") as file:
        file.write(text)


def as_record(step: int, number: int, sample: Sample) -> dict[str, Any]:
    """Return a line of `alignments.jsonl`: the attention to a translation, and to the reference; three digits."""
    translation, forced = sample.translation, sample.forced
    is_comparable = forced.source_words == translation.source_words
    return {
        "step": step,
        "sample": number,
        "source": translation.source,
        "translation": translation.text,
        "reference": sample.reference,
        "source_words": translation.source_words,
        "target_words": translation.target_words,
        "weights": np.round(translation.weights.astype(float), 3).tolist(),
        "reference_words": forced.target_words,
        "reference_weights": np.round(forced.weights.astype(float), 3).tolist() if is_comparable else [],
    }


@final
class NullReporter:
    """Takes the place of a `Reporter` in ranks other than 0: it reports nothing and silences log messages."""

    def __enter__(self) -> "NullReporter":
        self.previous_level = logging.getLogger("nmt").level
        logging.getLogger("nmt").setLevel(logging.CRITICAL + 1)
        return self

    def __exit__(self, *error: object) -> None:
        logging.getLogger("nmt").setLevel(self.previous_level)

    def ignore(self, *values: Any, **named: Any) -> None: ...

    start = train = progress = validation = samples = end_progress = ignore
    phase: Phase = staticmethod(silent_phase)
