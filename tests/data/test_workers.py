"""Helper processes: what they make comes in order, and how they end is told."""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from itertools import islice

import pytest

from nmt.data.workers import prefetch
from nmt.errors import WorkerError


def numbers(start: int) -> Iterator[int]:
    """Yield numbers up to 3, then kill this process; fail if there are none."""
    yield from range(start, 4)
    if start > 3:
        raise ZeroDivisionError(start)
    os.kill(os.getpid(), signal.SIGKILL)


def ahead(start: int) -> Iterator[int]:
    return prefetch(numbers, start, what="the process that counts", advice="count less")


def test_a_process_that_is_killed_is_one_line_after_what_it_has_made() -> None:
    made = ahead(1)
    assert list(islice(made, 3)) == [1, 2, 3]
    with pytest.raises(
        WorkerError, match=r"^the process that counts was ended by the system, probably for lack of memory: count less$"
    ):
        next(made)


def test_a_process_that_is_killed_while_it_sends_is_not_waited_for() -> None:
    """What it has made is too large for a pipe, so that half of it is there."""
    before = set(multiprocessing.active_children())
    made = prefetch(large, what="the process that counts", advice="count less")
    assert len(next(made)) == 10**6
    (process,) = set(multiprocessing.active_children()) - before
    process.kill()
    with pytest.raises(WorkerError):
        next(made)


def large() -> Iterator[bytes]:
    while True:
        yield bytes(10**6)


def test_an_error_in_the_process_is_raised_with_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError, match="4") as raised:
        next(ahead(4))
    assert "raise ZeroDivisionError(start)" in raised.value.__notes__[0]


def test_the_process_ends_with_the_iterator() -> None:
    before = set(multiprocessing.active_children())
    made = ahead(1)
    next(made)
    del made
    assert set(multiprocessing.active_children()) <= before
