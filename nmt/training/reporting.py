"""What a run tells while it trains: console, `train.log`, `metrics.jsonl` and TensorBoard."""

import json
import logging
import logging.handlers
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, final

import numpy as np
from jaxtyping import Float
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from nmt.config.schema import TrainConfig, keys

logger = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
LIVE = {"live": True}  # marks a log record that the live display shows in its own way
PICTURE_WIDTH = 350  # TensorBoard shows pictures this wide and scales others without smoothing: letters lose strokes
SCORES = ("bleu", "chrf", "ter", "aer", "attention_entropy", "repetition_rate")  # of all that a test split gives
FORMATS = {"loss": ".3f", "perplexity": ".2f", "bleu": ".2f", "chrf": ".2f", "aer": ".3f"}


@dataclass(frozen=True)
class Sample:
    """A validation sentence as it is shown: its translation, and the attention over words."""

    source: str
    reference: str
    hypothesis: str
    weights: Float[np.ndarray, "target source"]
    source_words: list[str]
    target_words: list[str]


@final
class Reporter:
    """Reports a run; use it as a context manager.

    From `with` on, what any module of nmt logs reaches the console; `start` creates the files and writes to
    `train.log` what was logged before, so that a run that fails before it leaves no files. All files are
    appended to when a run goes on. On a terminal there is a live bar, elsewhere a plain line a report.
    """

    def __init__(self, run_dir: Path, *, config: TrainConfig, console: Console | None = None) -> None:
        self.run_dir = run_dir
        self.config = config
        self.display = Display(console or Console(stderr=True))
        self.log = Log(self.display)
        self.board: Board | None = None
        self.step = 0

    def __enter__(self) -> "Reporter":
        self.log.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.display.stop()
        self.log.close()
        if self.board is not None:
            self.board.close()

    def start(self, summary: str, step: int = 0) -> None:
        """Create the files of the run, show what is about to be trained, and start the live display.

        A run goes on after update `step`: what was recorded of later ones, which are to be made again, is dropped.
        """
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self.log.write_to(self.run_dir / "train.log")
        drop_records(self.run_dir / METRICS, after=step)
        self.board = Board(self.run_dir / "tensorboard", after=step)
        for line in summary.splitlines():
            logger.info("%s", line)
        self.display.start()

    def train(
        self,
        *,
        step: int,
        epoch: float,
        loss: float,
        perplexity: float,
        learning_rate: float,
        gradient_norm: float,
        tokens_per_second: float,
        eta_seconds: float | None,
        share_done: float = 0.0,
        alignment_loss: float | None = None,
        skipped: float = 0.0,
    ) -> None:
        """Report the updates since the last report; `share_done` moves the bar. Guided ones have an alignment loss."""
        scalars = {"loss": loss, "perplexity": perplexity, "learning_rate": learning_rate}
        scalars |= {"gradient_norm": gradient_norm, "tokens_per_second": tokens_per_second}
        self.step = step
        self.display.update(share_done, loss=loss, speed=tokens_per_second, eta=eta_seconds)
        if alignment_loss is not None:
            scalars["alignment_loss"] = alignment_loss
        line = "update %d  epoch %.2f  loss %.3f  perplexity %.2f  rate %.2e  norm %.2f  %.0f tokens/s  %s left"
        values = (step, epoch, loss, perplexity, learning_rate, gradient_norm, tokens_per_second)
        logger.info(line, *values, duration(eta_seconds), extra=LIVE)
        if skipped:
            scalars["skipped"] = skipped
            logger.warning("updates skipped since the last report, their gradients not being finite: %d", skipped)
        self._record("train", {"epoch": epoch, **scalars})
        self._board.scalars("train", scalars, step)

    def validation(self, *, step: int, metrics: Mapping[str, float], samples: Sequence[Sample]) -> None:
        """Report a validation: its metrics, and the translations and heatmaps of a few sentences."""
        self.step = step
        self.display.validated(metrics)
        shown = "  ".join(f"{name} {value:{FORMATS.get(name, '.4g')}}" for name, value in metrics.items())
        logger.info("validation at update %d: %s", step, shown)
        self._record("validation", metrics)
        self._board.scalars("validation", metrics, step)
        self._board.samples(samples, step)

    def notice(self, text: str) -> None:
        """Tell something in words."""
        logger.info("%s", text)

    def end_progress(self) -> None:
        """Take the live display away, so that what follows may print."""
        self.display.stop()

    def finish(self, final_metrics: Mapping[str, Any]) -> None:
        """Record the scores of the test split, and the hyper-parameters they came from."""
        self.end_progress()
        scalars = {name: value for name, value in final_metrics.items() if type(value) in (int, float)}
        self._record("final", scalars)
        scores = {name: scalars[name] for name in SCORES if name in scalars}
        self._board.final(hyperparameters(self.config), scores, self.step)

    @property
    def _board(self) -> "Board":
        assert self.board is not None, "report after start()"
        return self.board

    def _record(self, event: str, values: Mapping[str, float]) -> None:
        finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
        record = {"event": event, "step": self.step, "time": round(time.time(), 3), **finite}
        with (self.run_dir / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def drop_records(path: Path, *, after: int) -> None:
    """Drop the records of updates after one, and lines that a crash left unfinished."""
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if is_record(line, until=after)]
    if kept != lines:
        replacement = path.with_name(f".{path.name}.{os.getpid()}")
        replacement.write_text("".join(kept), encoding="utf-8")
        replacement.replace(path)


def is_record(line: str, *, until: int) -> bool:
    """Tell whether a line holds a whole record, of an update until one."""
    try:
        return line.endswith("\n") and int(json.loads(line)["step"]) <= until
    except (ValueError, KeyError, TypeError):
        return False


@final
class NullReporter:
    """Takes the place of a `Reporter` in a process that leaves reporting to another."""

    def __init__(self) -> None:
        self.logger = logging.getLogger("nmt")
        self.before = (self.logger.level, self.logger.propagate)

    def __enter__(self) -> "NullReporter":
        self.logger.setLevel(logging.CRITICAL + 1)
        self.logger.propagate = False
        return self

    def __exit__(self, *error: object) -> None:
        self.logger.setLevel(self.before[0])
        self.logger.propagate = self.before[1]

    def start(self, summary: str, step: int = 0) -> None: ...

    def train(self, **values: float | None) -> None: ...

    def validation(self, *, step: int, metrics: Mapping[str, float], samples: Sequence[Sample]) -> None: ...

    def notice(self, text: str) -> None: ...


def duration(seconds: float | None) -> str:
    """Return seconds as `m:ss` or `h:mm:ss`, or `?` when unknown."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def hyperparameters(config: TrainConfig) -> dict[str, float | str]:
    """Return the keys that may change a score, as TensorBoard's table of hyper-parameters takes them."""
    found: dict[str, float | str] = {"data.kind": config.data.kind}
    for name, _, value in keys(config):
        if value is not None and not name.startswith(("data.", "run_dir", "resume", "threads")):
            found[name] = value if type(value) in (int, float) else str(value)
    return found


@final
class Display:
    """The console: a live bar under the messages on a terminal, messages alone elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        columns = ("{task.fields[loss]}", "{task.fields[quality]}", "{task.fields[speed]}", "{task.fields[eta]}")
        self.progress = Progress(
            TextColumn("training"),
            BarColumn(bar_width=None),
            *(TextColumn(column) for column in columns),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            redirect_stdout=False,  # standard output may be a file
            redirect_stderr=False,
            disable=not console.is_terminal,
        )
        self.task = self.progress.add_task("", total=1.0, loss="", quality="", speed="", eta="")

    def start(self) -> None:
        """Show the bar."""
        self.progress.start()

    def stop(self) -> None:
        """Take the bar away; harmless when there is none."""
        self.progress.stop()

    def update(self, share_done: float, *, loss: float, speed: float, eta: float | None) -> None:
        """Show the state of training."""
        self.progress.update(
            self.task,
            completed=min(1.0, share_done),
            loss=f"loss {loss:.3f}",
            speed=f"{speed:,.0f} tokens/s",
            eta=f"ETA {duration(eta)}",
        )

    def validated(self, metrics: Mapping[str, float]) -> None:
        """Show the quality last measured."""
        if "bleu" in metrics:
            self.progress.update(self.task, quality=f"BLEU {metrics['bleu']:.2f}")


@final
class Log(logging.Handler):
    """Takes what nmt logs to the console and, once `write_to` has named it, to a file."""

    def __init__(self, display: Display) -> None:
        super().__init__()
        self.display = display
        self.logger = logging.getLogger("nmt")
        self.early = logging.handlers.MemoryHandler(10_000, flushLevel=logging.CRITICAL + 1, flushOnClose=False)
        self.file: logging.Handler = self.early
        self.before = (self.logger.level, self.logger.propagate)

    def open(self) -> None:
        """Begin to take records."""
        self.before = (self.logger.level, self.logger.propagate)
        self.logger.setLevel(logging.INFO)
        self.logger.propagate = False
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record to the file and show it, unless the live bar does."""
        self.file.handle(record)
        if not (self.display.console.is_terminal and hasattr(record, "live")):
            prefix = f"{record.levelname.lower()}: " if record.levelno > logging.INFO else ""
            self.display.console.print(prefix + record.getMessage(), markup=False, highlight=False, soft_wrap=True)

    def write_to(self, path: Path) -> None:
        """Append records to a file, those taken so far included."""
        self.file = logging.FileHandler(path, encoding="utf-8")
        self.file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        self.early.setTarget(self.file)
        self.early.flush()

    def close(self) -> None:
        """Leave logging as it was found."""
        self.logger.removeHandler(self)
        self.logger.setLevel(self.before[0])
        self.logger.propagate = self.before[1]
        self.file.close()
        super().close()


@final
class Board:
    """TensorBoard's view of the run."""

    def __init__(self, folder: Path, *, after: int) -> None:
        """Curves go on after an update; TensorBoard hides what is there of later ones."""
        self.writer = SummaryWriter(str(folder), purge_step=after + 1 if folder.exists() else None)

    def scalars(self, group: str, values: Mapping[str, float], step: int) -> None:
        """Add a point to the curve of each value."""
        for name, value in values.items():
            self.writer.add_scalar(f"{group}/{name}", value, step)

    def samples(self, samples: Sequence[Sample], step: int) -> None:
        """Add the translations as text and their attention as pictures."""
        # Not before: drawing takes 30 MiB, which no process but the one that reports needs.
        from nmt.evaluation.heatmap import draw_heatmap, to_array

        for number, sample in enumerate(samples):
            self.writer.add_text(f"samples/{number}", as_markdown(sample), step)
            heatmap = draw_heatmap(sample.weights, sample.source_words, sample.target_words)
            pixels = to_array(heatmap, width=PICTURE_WIDTH)
            self.writer.add_image(f"alignment/{number}", pixels, step, dataformats="HWC")
        self.writer.flush()

    def final(self, settings: Mapping[str, float | str], scores: Mapping[str, float], step: int) -> None:
        """Add the hyper-parameters with the scores they led to.

        Not with `add_hparams`, which makes a run of its own beside this one.
        """
        named = {f"test/{name}": value for name, value in scores.items()}
        for summary in hparams(dict(settings), named):
            self.writer.file_writer.add_summary(summary)
        self.scalars("test", scores, step)
        self.writer.flush()

    def close(self) -> None:
        """Write what is left."""
        self.writer.close()


def as_markdown(sample: Sample) -> str:
    """Return the sentence, its translation and its reference as a table."""
    rows = (("source", sample.source), ("translation", sample.hypothesis), ("reference", sample.reference))
    head, *lines = (f"| {name} | {text.replace('|', chr(92) + '|')} |" for name, text in rows)
    return "\n".join([head, "|---|---|", *lines])
