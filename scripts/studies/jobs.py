"""Parallel jobs, each in a process of its own."""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from pathlib import Path
from typing import TypeVar

from nmt.data.workers import begin_worker

Job = TypeVar("Job")
Result = TypeVar("Result")


def run_jobs(work: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Iterator[tuple[Job, Result]]:
    """Yield each job with the result of `work`, in the order of completion.

    With one worker jobs run in this process, in their order; in other processes their output is discarded. After
    Ctrl-C or any other error, running jobs are interrupted too and waited for: a training run saves its state first. If
    this process is killed, they end at once.

    Args:
        work: a function defined in a module, so that it can be pickled.
        jobs: what it is called with.
        workers: the number of processes.
    """
    if workers == 1:
        yield from ((job, work(job)) for job in jobs)
        return
    waiting = iter(jobs)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=initialize_worker) as pool:
        # No more jobs than workers are submitted: one that waits in the pool would start after an interrupt.
        running = {pool.submit(run_quietly, work, job): job for job in islice(waiting, workers)}
        try:
            while running:
                done: set[Future[Result]] = wait(running, return_when=FIRST_COMPLETED).done
                results = [(running.pop(future), future.result()) for future in done]
                running |= {pool.submit(run_quietly, work, job): job for job in islice(waiting, len(done))}
                yield from results
        except BaseException:
            for process in multiprocessing.active_children():
                if process.pid is not None:
                    os.kill(process.pid, signal.SIGINT)
            raise


def initialize_worker() -> None:
    """Leave the terminal's process group, so that SIGINT arrives once, forwarded by the parent; end with the parent."""
    os.setpgrp()
    begin_worker()


def run_quietly(work: Callable[[Job], Result], job: Job) -> Result:
    """Run a job without output; SIGINT interrupts the job, but not the worker that waits for the next one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with (
            Path(os.devnull).open("w") as null,
            contextlib.redirect_stdout(null),
            contextlib.redirect_stderr(null),
        ):
            return work(job)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
