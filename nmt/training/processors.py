"""Detect that the threads of a training compete with other programs for processors."""

import contextlib
import logging
import time
from pathlib import Path
from typing import final

logger = logging.getLogger(__name__)

WINDOW = 20.0  # seconds to look at, at least
MOST_WAITING = 0.25  # threads, on average
THREADS = Path("/proc/self/task")


@final
class Processors:
    """Logs a message once if threads wait for processors that other programs use (Linux only).

    The threads of a matrix product wait for each other by spinning. If one of them has to wait for a processor, the
    others burn theirs: training may drop to a tenth of its speed (docs/engineering-log.md).

    Args:
        threads: of the training on this machine's processors.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.is_told = threads == 1  # which waits for no other
        self.before = time.monotonic(), waited()

    def look(self) -> None:
        """Compare with how it was at the last look, if that was `WINDOW` ago or more."""
        now = time.monotonic(), waited()
        seconds, waiting = (value - before for value, before in zip(now, self.before, strict=True))
        if self.is_told or seconds < WINDOW:
            return
        self.before = now
        if waiting > MOST_WAITING * seconds:
            self.is_told = True
            logger.info(
                "other programs use the processors, too, and the %d threads of this training wait for each other: "
                "threads=1 may be several times as fast. Ctrl-C saves the run; the same command with threads=1 goes on "
                "with it",
                self.threads,
            )


def waited() -> float:
    """Return for how many seconds the threads of this process have waited for a processor; 0 where that is unknown."""
    total = 0
    with contextlib.suppress(OSError, ValueError):  # another system, or a thread that has just ended
        for thread in THREADS.iterdir():
            with contextlib.suppress(OSError):
                total += int((thread / "schedstat").read_text().split()[1])
    return total / 1e9
