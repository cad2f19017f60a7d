"""Jobs side by side, each in a process that has a core to itself."""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from pathlib import Path
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def side_by_side(work: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Iterator[tuple[Job, Result]]:
    """Yield each job with what `work` made of it, as they end; with one worker, in this process and in order.

    What a process of several prints is dropped. On Ctrl-C, or any other error, the jobs under way get the interrupt
    too, and are waited for: a training saves its state first.

    Args:
        work: a function of a module, of what can be pickled.
        jobs: as many as there are.
        workers: processes.
    """
    if workers == 1:
        yield from ((job, work(job)) for job in jobs)
        return
    waiting = iter(jobs)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=be_a_worker) as pool:
        # No more than can run at once, or those handed out already would begin after an interrupt.
        running = {pool.submit(interruptible, work, job): job for job in islice(waiting, workers)}
        try:
            while running:
                ended: set[Future[Result]] = wait(running, return_when=FIRST_COMPLETED).done
                results = [(running.pop(future), future.result()) for future in ended]
                running |= {pool.submit(interruptible, work, job): job for job in islice(waiting, len(ended))}
                yield from results
        except BaseException:
            for process in multiprocessing.active_children():
                if process.pid is not None:
                    os.kill(process.pid, signal.SIGINT)
            raise


def be_a_worker() -> None:
    """Leave Ctrl-C to the parent, which passes it on: a terminal would send it a second time, to be obeyed at once."""
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def interruptible(work: Callable[[Job], Result], job: Job) -> Result:
    """Do the job, quietly, so that it can be interrupted but waiting for the next one cannot."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with (
            Path(os.devnull).open("w") as nowhere,
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),
        ):
            return work(job)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
