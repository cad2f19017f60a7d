"""Detect that the threads of a training compete with other programs for processors."""

import contextlib
import logging
import time
from pathlib import Path
from typing import final

logger = logging.getLogger(__name__)

MIN_SECONDS_BETWEEN_CHECKS = 20.0
MAX_WAITING_THREADS = 0.25  # on average
THREAD_FOLDERS = Path("/proc/self/task")


@final
class ContentionMonitor:
    """Logs a message once if threads wait for processors that other programs use (Linux only).

    The threads of a matrix product wait for each other by spinning. If one of them has to wait for a processor, the
    others burn theirs: training may drop to a tenth of its speed (docs/engineering-log.md).
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.is_reported = threads == 1  # which waits for no other
        self.last_check = time.monotonic(), seconds_waited()

    def check(self) -> None:
        """Compare with the last check, if that was `MIN_SECONDS_BETWEEN_CHECKS` ago or more."""
        now = time.monotonic(), seconds_waited()
        seconds, waiting = now[0] - self.last_check[0], now[1] - self.last_check[1]
        if self.is_reported or seconds < MIN_SECONDS_BETWEEN_CHECKS:
            return
        self.last_check = now
        if waiting > MAX_WAITING_THREADS * seconds:
            self.is_reported = True
            logger.info(
                "other programs use the processors, too, and the %d threads of this training wait for each other: "
                "threads=1 may be several times as fast. Ctrl-C saves the run; the same command with threads=1 goes on "
                "with it",
                self.threads,
            )


def seconds_waited() -> float:
    """Return for how many seconds the threads of this process have waited for a processor; 0 where that is unknown."""
    total = 0
    with contextlib.suppress(OSError, ValueError):  # another system, or a thread that has just ended
        for thread in THREAD_FOLDERS.iterdir():
            with contextlib.suppress(OSError):
                total += int((thread / "schedstat").read_text().split()[1])
    return total / 1e9
