"""SIGINT and SIGTERM, deferred to the end of an update."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from nmt.training.distributed import SINGLE_PROCESS, ProcessGroup

# Signals that are deferred, with their default handlers; one with another handler is left alone.
DEFAULT_HANDLERS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


@contextlib.contextmanager
def deferred_interrupts(processes: ProcessGroup = SINGLE_PROCESS) -> Iterator[Callable[[], None]]:
    """Defer the first SIGINT or SIGTERM until the yielded function is called, or the block ends.

    Both then raise KeyboardInterrupt. A second signal has its default effect at once. A signal that is ignored or has
    another handler is not deferred, and none is outside the main thread, which alone receives signals.

    With several processes the function is collective: all ranks raise when one has received a signal. Further signals
    have no effect, because a rank that left alone would leave the others waiting.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    deferred = [
        number for number, default in DEFAULT_HANDLERS.items() if is_main_thread and signal.getsignal(number) is default
    ]
    interrupted = False

    def restore_handlers() -> None:
        for number in deferred:
            signal.signal(number, DEFAULT_HANDLERS[number])

    def handle(number: int, frame: Any) -> None:
        nonlocal interrupted
        interrupted = True
        if processes.world_size == 1:
            restore_handlers()

    def raise_interrupt() -> None:
        if processes.sum_over_ranks(interrupted):
            raise KeyboardInterrupt

    for number in deferred:
        signal.signal(number, handle)
    try:
        yield raise_interrupt
    finally:
        restore_handlers()
    raise_interrupt()
