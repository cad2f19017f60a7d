"""Messages of a run: the console with its live bar, and `train.log`."""

import contextlib
import logging
import logging.handlers
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TimeElapsedColumn

from nmt.evaluation.report import PipeConsole
from nmt.formats import duration

SHOWN_BY_BAR = {"live": True}  # marks a log record that the live bar replaces
MAX_SILENT_SECONDS = 4.0  # without a message; then progress is logged at the end of the current update or batch

Advance = Callable[[int], None]  # called with the number of sentences just read
Phase = Callable[[str, int], AbstractContextManager[Advance]]  # called with a name and the number of sentences to read

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def silent_phase(name: str, total: int) -> Iterator[Advance]:
    """A `Phase` that nobody watches."""
    yield lambda count: None


@final
class LiveDisplay:
    """The console: on a terminal a live bar below the messages, elsewhere messages only."""

    def __init__(self, console: Console | None = None) -> None:
        """`console` is that of standard error unless another is given."""
        self.console = console or PipeConsole(stderr=True)
        self.progress = Progress(
            "{task.description}",
            BarColumn(bar_width=None),
            "{task.fields[loss]}",
            "{task.fields[quality]}",
            "{task.fields[speed]}",
            "{task.fields[eta]}",
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            redirect_stdout=False,  # standard output may be a file
            redirect_stderr=False,
            disable=not self.console.is_terminal,
        )
        self.task = self._task("training", 1.0)

    def _task(self, name: str, total: float) -> TaskID:
        return self.progress.add_task(name, total=total, loss="", quality="", speed="", eta="")

    def show(self, **fields: Any) -> None:
        """Change the bar of the training: `completed`, from 0 to 1, `visible`, or one of the texts on it."""
        self.progress.update(self.task, **fields)

    @contextlib.contextmanager
    def phase(self, name: str, total: int) -> Iterator[Advance]:
        """Show the progress of a phase, a `Phase`: a bar of its own, or a line now and then where there are no bars."""
        was_live = self.progress.live.is_started
        self.progress.start()
        task, done = self._task(name, total), 0
        started = last_message = time.monotonic()

        def advance(count: int) -> None:
            nonlocal done, last_message
            done, now = done + count, time.monotonic()
            time_left = duration((now - started) * max(0, total - done) / done)
            self.progress.update(task, completed=done, eta=f"ETA {time_left}")
            if now - last_message >= MAX_SILENT_SECONDS:
                last_message = now
                logger.info("%s: %.0f%%  %s left", name, min(100, 100 * done / total), time_left, extra=SHOWN_BY_BAR)

        try:
            yield advance
        finally:
            self.progress.remove_task(task)
            if not was_live:
                self.progress.stop()


@final
class LogHandler(logging.Handler):
    """Shows the log messages of nmt on the console and, after `write_to`, writes them to a file."""

    def __init__(self, display: LiveDisplay) -> None:
        super().__init__()
        self.display = display
        self.logger = logging.getLogger("nmt")
        self.previous_settings = (self.logger.level, self.logger.propagate)
        self.early_messages = logging.handlers.MemoryHandler(
            10_000, flushLevel=logging.CRITICAL + 1, flushOnClose=False
        )
        self.file: logging.Handler = self.early_messages

    def open(self) -> None:
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
        """Append messages to a file, including those logged so far."""
        self.file = LogFile(path, encoding="utf-8")
        self.file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        self.early_messages.setTarget(self.file)
        self.early_messages.flush()

    def close(self) -> None:
        self.logger.removeHandler(self)
        level, self.logger.propagate = self.previous_settings
        self.logger.setLevel(level)
        with contextlib.suppress(OSError):  # logged by `LogFile`
            self.file.close()
        super().close()


@final
class LogFile(logging.FileHandler):
    """A log file that warns once and is given up when the disk is full."""

    is_lost = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802, a method of the library
        """Log once that the file cannot be written."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self.is_lost:
            self.is_lost = True
            logger.warning("%s cannot be written (%s): the run goes on", self.baseFilename, error.strerror or error)
