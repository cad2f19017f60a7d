"""Ctrl-C, or the request of a cluster to stop, between updates instead of within them."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from nmt.training.distributed import SINGLE_PROCESS, Processes

# What each signal does unless somebody has chosen otherwise: only then is it held back.
USUAL: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


@contextlib.contextmanager
def deferred_interrupts(processes: Processes = SINGLE_PROCESS) -> Iterator[Callable[[], None]]:
    """Hold the first SIGINT or SIGTERM back until the function that is yielded is called: it raises KeyboardInterrupt.

    The end of the block raises it too. A second signal has its usual effect at once. Nothing is held back that is
    ignored or handled otherwise, nor outside the main thread, which alone gets signals.

    Of several processes all raise it when one has got a signal, so all must call the function; further signals have
    no effect, for one that left alone would leave the others waiting.
    """
    held = [number for number, usual in USUAL.items() if signal.getsignal(number) is usual]
    if threading.current_thread() is not threading.main_thread():
        held = []
    interrupted = False

    def release() -> None:
        for number in held:
            signal.signal(number, USUAL[number])

    def note(number: int, frame: Any) -> None:
        nonlocal interrupted
        interrupted = True
        if processes.size == 1:
            release()

    def raise_interrupt() -> None:
        if any(processes.total(interrupted)):
            raise KeyboardInterrupt

    for number in held:
        signal.signal(number, note)
    try:
        yield raise_interrupt
    finally:
        release()
    raise_interrupt()
