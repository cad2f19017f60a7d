"""Several batches at once on a CPU: a thread for each, so that each needs fewer of torch's threads."""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def map_in_threads(work: Callable[[Any], Result], items: Sequence[Any]) -> Generator[Result, None, None]:
    """Like `map`, but with several items at once and torch's threads divided among them.

    A step of a search is some sixty small operations: many are too small to share, and their calls take as long as
    their arithmetic. So two searches of one thread each end sooner than one after the other with two threads.
    """
    threads = torch.get_num_threads()
    at_once = min(threads, len(items))
    if at_once < 2:
        yield from map(work, items)
        return
    try:
        with ThreadPoolExecutor(at_once, initializer=partial(torch.set_num_threads, threads // at_once)) as pool:
            yield from pool.map(work, items)
    finally:
        torch.set_num_threads(threads)  # a thread's number is also that of threads that begin later
