"""Time, processor time and memory of each step from a training text to batches."""

import contextlib
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from nmt.config.schema import TrainConfig
from nmt.data.batch import TrainLoader
from nmt.data.corpus import clean, load_split
from nmt.data.tables import encode, lines_of
from nmt.text.tokenizer import build_tokenizers
from nmt.training.prepare import learning_text

BATCHES = 100
MEBIBYTE = 1 << 10  # of the kB in /proc
Result = TypeVar("Result")


def measure_data(config: TrainConfig) -> Iterator[dict[str, Any]]:
    """Yield a row for each step from text to batches, with an empty cache.

    Memory is that of this process and its children which no file backs, at its peak; pages of files, which the system
    takes back when it needs them, are not in it. It is None if there is no /proc.

    Raises:
        UserError: the corpus cannot be trained on.
    """
    with tempfile.TemporaryDirectory() as cache:
        data = replace(config.data, cache_dir=cache)
        corpus = yield from measure("reading", lambda: load_split(data, "train"), len)
        corpus, _ = yield from measure("cleaning", lambda: clean(corpus, data.cleaning), lambda done: done[1].total)
        text = learning_text(corpus, config.tokenizer)
        learned = yield from measure(
            "learning subwords",
            lambda: build_tokenizers(lines_of(text, "source"), lines_of(text, "target"), config.tokenizer),
            lambda _: len(text),
        )
        encoded = yield from measure(
            "encoding", lambda: encode(corpus, learned, cache_dir=cache, num_workers=data.num_workers), len
        )
        loader = TrainLoader(encoded, learned, config.batch, seed=config.seed, sampling=config.tokenizer.sampling)
        window = min(len(corpus), config.batch.window)
        yield from measure("planning a window", lambda: len(loader), lambda _: window)
        yield from measure("batches", lambda: list(islice(loader, BATCHES)), lambda made: sum(map(len, made)))


def measure(
    step: str, work: Callable[[], Result], count: Callable[[Result], int]
) -> Generator[dict[str, Any], None, Result]:
    """Do some work, yield its row, and return its result, of which `count` says how many pairs it took."""
    begun, used = time.perf_counter(), processor_time()
    with peak_memory() as peak:
        result = work()
    seconds, used = time.perf_counter() - begun, processor_time() - used
    row = {"step": step, "pairs": count(result), "seconds": seconds, "cpu_seconds": used}
    yield row | {"pairs_per_second": count(result) / seconds, "peak_mib": max(peak, default=None)}
    return result


def processor_time() -> float:
    """Return the seconds that this process and those of its children that have ended have computed."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


@contextlib.contextmanager
def peak_memory() -> Iterator[list[float]]:
    """Yield a list to which a thread adds the memory in use, in MiB, twenty times a second."""
    samples: list[float] = []
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.05):
            with contextlib.suppress(OSError, ValueError):
                samples.append(sum(anonymous(process) for process in with_children("self")))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()


def with_children(process: str) -> Iterator[str]:
    """Yield the numbers of a process and its descendants."""
    yield process
    for task in Path("/proc", process, "task").iterdir():
        for child in (task / "children").read_text().split():
            yield from with_children(child)


def anonymous(process: str) -> float:
    """Return the MiB of a process that no file backs, shared ones divided by those who share them."""
    lines = Path("/proc", process, "smaps_rollup").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("Pss_Anon")) / MEBIBYTE
