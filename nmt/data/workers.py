"""Helper processes: they leave interrupts to their parent, end with it, and make things ahead of time."""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from nmt.errors import worker_error

T = TypeVar("T")


def begin_worker() -> None:
    """Prepare a helper process: it leaves interrupts to its parent, ends when told to, and ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the parent may have deferred it
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def prefetch(make: Callable[..., Iterable[T]], *arguments: Any, what: str, advice: str) -> Iterator[T]:
    """Yield the items of `make(*arguments)`, which another process makes, one ahead of time.

    It is ended with the iterator. Its errors are raised here, with its traceback as a note; where it is ended from
    outside, a WorkerError says `what` it is, and gives an `advice`.
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=_send_all, args=(sender, make, *arguments), daemon=True)
    process.start()
    sender.close()  # so that the end of the process is the end of what is received
    try:
        while True:
            try:
                item, error = receiver.recv()
            except (EOFError, OSError):  # at the end of an item, or within
                raise worker_error(what, advice) from None
            if error is not None:
                raise error
            yield item
    finally:
        process.kill()
        process.join()
        receiver.close()


def _send_all(sender: Connection, make: Callable[..., Iterable[Any]], *arguments: Any) -> None:
    begin_worker()
    try:
        for item in make(*arguments):
            sender.send((item, None))
    except Exception as error:
        error.add_note(traceback.format_exc())
        sender.send((None, error))
