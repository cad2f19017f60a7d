"""Ctrl-C between updates, not within them."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[Callable[[], None]]:
    """Hold the first SIGINT back until the function that is yielded is called, which then raises KeyboardInterrupt.

    The end of the block raises it too. A second SIGINT has its usual effect at once. Nothing is held back where
    SIGINT is ignored or handled otherwise, nor outside the main thread, which alone gets signals.
    """
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    interrupted = False

    def note(number: int, frame: Any) -> None:
        nonlocal interrupted
        interrupted = True
        signal.signal(signal.SIGINT, usual)

    def raise_interrupt() -> None:
        if interrupted:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield raise_interrupt
    finally:
        signal.signal(signal.SIGINT, usual)
    raise_interrupt()
