"""Corpora as tables on disk: text and its subword ids, written atomically, memory-mapped."""

import contextlib
import hashlib
import itertools
import logging
import math
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nmt.config.schema import DataConfig, SplitConfig
from nmt.data.workers import begin_worker
from nmt.errors import UserError, worker_error
from nmt.formats import duration
from nmt.text.tokenizer import Tokenizers

if TYPE_CHECKING:  # translation, which needs no tables, starts a third sooner without it
    import datasets

logger = logging.getLogger(__name__)

TEST_SPLITS = ("test", "test_long")
SPLITS = ("train", "validation", *TEST_SPLITS)
SIDES = ("source", "target")
BATCH_SIZE = 1_000  # pairs that are encoded at once
QUEUED = 4  # batches for each process that encodes
INTERVAL = 3.0  # seconds between two messages
MIN_LOGGED_SECONDS = 1.5  # seconds that work must take to be mentioned
HASHED_AT_ONCE = 100_000
LINES_AT_ONCE = 10_000
ADVICE = "choose another folder with data.cache_dir"
TOKENIZATION = Path(__file__).parents[1] / "text"  # the code that makes subword ids of text
PARALLEL_FROM = 20_000  # pairs; for fewer, starting processes takes longer than encoding


class Corpus(ABC):
    """Parallel text, as `DataConfig` describes it; each kind is a subclass, registered in `nmt.data.corpus.CORPORA`.

    `split_keys` are the keys of `data.<split>` (`SplitConfig`) that the kind reads; setting any other is an error.
    """

    split_keys: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: DataConfig) -> None:
        self.config = config
        self.progress = ProgressLog("reading the text")

    @abstractmethod
    def load(self, split: str) -> "datasets.Dataset":
        """Return a split, memory-mapped: text columns source, target and, where there is gold, alignment (Pharaoh);
        raise UserError if the split does not exist or cannot be read.
        """

    @abstractmethod
    def has_split(self, split: str) -> bool:
        """Whether the split is configured: `load` then returns it, or reports what is wrong with it."""

    @abstractmethod
    def has_gold(self, split: str) -> bool:
        """Whether the split has gold alignments."""

    def check_files(self, split: str, *, readers: int = 1) -> None:  # noqa: B027
        """Raise `UserError` for a file that does not exist, or cannot be read by so many processes; nothing is read."""

    def missing(self, split: str) -> UserError:
        """Return the error for a split that is needed but not configured."""
        return UserError(f"data={self.config.kind} has no {split} split")

    def split_config(self, split: str) -> SplitConfig:
        """Return `data.<split>`, which is empty for test_long."""
        return getattr(self.config, split, SplitConfig())

    def stored(self, digest: str, build: Callable[[], Iterable[pa.Table]]) -> "datasets.Dataset":
        """Return the table whose parts `build` makes, stored in `data.cache_dir` under a digest of its content."""
        path = Path(self.config.cache_dir).expanduser() / f"corpus-{digest[:24]}.arrow"
        import datasets

        return datasets.Dataset.from_file(str(stored_table(path, lambda _: build())))


def source_code(place: Path) -> bytes:
    """Return the content of a source file, or of all those of a folder.

    The digest in the name of a stored table includes it, so that a table that other code made is not reused.
    """
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    return b"".join(file.read_bytes() for file in files if file.suffix in (".py", ".toml"))


def lines_of(corpus: "datasets.Dataset", side: str) -> Iterator[str]:
    """Yield the sentences of a column, which the table itself yields at a sixth of the speed."""
    for part in corpus.select_columns([side]).iter(LINES_AT_ONCE):
        yield from part[side]


class ProgressLog:
    """Logs the progress of the work in a block every few seconds: pairs done and in all, pairs per second, time left;
    of work that does not count pairs, the time taken. Work longer than `INTERVAL` is also logged when it is done, and
    work shorter than `MIN_LOGGED_SECONDS` never.
    """

    last_message: ClassVar[float] = -math.inf  # its time, of any work: a series of short works should not be silent

    def __init__(self, work: str, total: int | None = None) -> None:
        self.work = work
        self.total = total
        self.done = 0

    def add(self, count: int) -> None:
        self.done += count

    def __enter__(self) -> "ProgressLog":
        self._started = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._log_repeatedly, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        if error == (None, None, None) and time.monotonic() - self._started > INTERVAL:
            self._log("done, ")

    def _log_repeatedly(self) -> None:
        while not self._ended.wait(max(MIN_LOGGED_SECONDS, ProgressLog.last_message + INTERVAL - time.monotonic())):
            self._log()

    def _log(self, outcome: str = "") -> None:
        ProgressLog.last_message = time.monotonic()
        logger.info("%s: %s%s", self.work, outcome, self._state(time.monotonic() - self._started))

    def _state(self, seconds: float) -> str:
        if not self.done:
            return f"{seconds:.0f} s"
        rate, of, left = self.done / seconds, "", ""
        if self.total is not None and self.done < self.total:
            of, left = f" of {self.total:,}", f", {duration((self.total - self.done) / rate)} left"
        return f"{self.done:,}{of} pairs, {rate:,.0f} a second{left}"


def stored_table(path: Path, build: Callable[[Path], Iterable[pa.Table]]) -> Path:
    """Return `path`; unless it holds a table whose digest is that in PATH.sha256, first write the tables that `build`
    yields: the parts of one table, at least one, of which one at a time is in memory.

    The file is written as a temporary sibling and renamed, so it is never seen incomplete. Several processes may do
    this at once; the last rename wins, so the name must be determined by the content. `build` is given a folder for
    temporary files (see `temporary_folder`). Raises UserError if the folder cannot be made or written.
    """
    if is_intact(path):
        remove_leftovers(path)
        return path
    try:
        with temporary_folder(path) as folder:
            complete = folder / path.name
            write_tables(complete, iter(build(folder)))
            digest = folder / "digest"
            digest.write_text(digest_of(complete), encoding="ascii")
            # In this order: a table without its digest would be made anew.
            digest.replace(digest_file(path))
            complete.replace(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}; {ADVICE}") from None
    return path


def write_tables(path: Path, tables: Iterator[pa.Table]) -> None:
    """Write the parts of a table to a file, one after the other."""
    first = next(tables)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, first.schema) as writer:
        for table in itertools.chain((first,), tables):
            writer.write_table(table)


@contextlib.contextmanager
def temporary_folder(place: Path) -> Iterator[Path]:
    """Yield a new folder beside `place`, named .NAME.HOST.PROCESS-..., and delete it afterwards.

    Those that killed processes of this machine have left for the same place are deleted first.
    """
    remove_leftovers(place)
    prefix = f".{place.name}.{socket.gethostname()}.{os.getpid()}-"
    place.parent.mkdir(parents=True, exist_ok=True)
    # Another process may write into it until the end; what is left then is deleted as that of a killed process.
    with tempfile.TemporaryDirectory(prefix=prefix, dir=place.parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def remove_leftovers(place: Path) -> None:
    """Delete the temporary folders for a place whose process on this machine has ended."""
    for left in leftovers(place):
        shutil.rmtree(left, ignore_errors=True)


def leftovers(place: Path) -> list[Path]:
    """Return the temporary folders for a place whose process on this machine has ended."""
    start = f".{place.name}.{socket.gethostname()}."
    folders = [each for each in place.parent.glob(".*") if each.name.startswith(start)]
    return [each for each in folders if not is_alive(each.name.removeprefix(start).split("-")[0])]


def is_alive(process: str) -> bool:
    """Return whether a process of this machine is running; True for text that is not a process id."""
    try:
        os.kill(int(process), 0)
    except (OSError, ValueError, OverflowError) as error:  # it belongs to somebody else, or there is no such number
        return not isinstance(error, ProcessLookupError)
    return True


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal; a gigabyte takes about a second."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_file(path: Path) -> Path:
    """Return the path of the digest of a table."""
    return path.with_name(f"{path.name}.sha256")


def is_intact(path: Path) -> bool:
    """Return whether a table exists and has the content that was written; a damaged one is named in the log."""
    if not (path.exists() and digest_file(path).exists()):
        return False
    if digest_file(path).read_bytes() == digest_of(path).encode():
        return True
    logger.warning("%s is damaged and is rebuilt", path)
    return False


def mapped_table(path: Path) -> pa.Table:
    """Return the table in a file that `stored_table` wrote, memory-mapped."""
    return pa.ipc.open_stream(pa.memory_map(str(path))).read_all()


@contextlib.contextmanager
def progress_on_terminals_only(library: Any) -> Iterator[None]:
    """Disable progress bars where standard error is a file or a pipe: those of `datasets`, or of the hub's client."""
    if sys.stderr.isatty() or library.are_progress_bars_disabled():
        yield
        return
    library.disable_progress_bars()
    try:
        yield
    finally:
        library.enable_progress_bars()


@dataclass(frozen=True)
class Ragged:
    """Concatenated sequences of different lengths: sequence i is `ids[offsets[i] : offsets[i + 1]]`."""

    ids: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> npt.NDArray[np.int32]:
        """Return a sequence, as a view, or raise `IndexError` for a row below 0 or beyond the last."""
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return np.diff(self.offsets)

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> "Ragged":
        """Concatenate sequences."""
        offsets = np.cumsum([0, *map(len, sequences)], dtype=np.int64)
        ids = np.fromiter((i for sequence in sequences for i in sequence), dtype=np.int32, count=int(offsets[-1]))
        return cls(ids, offsets)


@dataclass(frozen=True)
class EncodedCorpus:
    """A corpus and the subword ids of its sides, without bos and eos."""

    corpus: "datasets.Dataset"
    source: Ragged
    target: Ragged

    def __len__(self) -> int:
        return len(self.corpus)

    @cached_property
    def checksum(self) -> str:
        """CRC-32 of the ids and the lengths of both sides; a gigabyte takes about a second."""
        value = 0
        for part in (self.source.ids, self.source.lengths, self.target.ids, self.target.lengths):
            value = zlib.crc32(part.data, value)
        return f"{value:08x}"


def encode(
    corpus: "datasets.Dataset",
    tokenizers: Tokenizers,
    *,
    cache_dir: str | Path,
    num_workers: int,
    parts: Sequence[Path] = (),
) -> EncodedCorpus:
    """Return the corpus (columns source and target) with its subword ids, from `cache_dir` if it is encoded there.

    Files are named by a digest of the text and the models. `num_workers` processes encode; a small corpus, this one.
    `parts` are files that `encode_part` has written, to be joined; those that are missing are encoded here. Raises
    UserError if `cache_dir` cannot be written or the file there has ids that the models do not have, and WorkerError if
    the system has ended one of these processes.
    """

    def batches() -> Iterator[tuple[Ragged, ...]]:
        if not parts:
            yield from _encoded_batches(corpus, tokenizers, num_workers)
        for number in range(len(parts)):
            yield _sides(encode_part(corpus, tokenizers, parts, number, num_workers=num_workers))

    with ProgressLog("encoding", len(corpus)) as progress:
        path = encoded_path(corpus, tokenizers, cache_dir)
        stored_table(path, lambda folder: _one_table(batches(), folder, progress))
    sides = _sides(path)
    for name, side in zip(SIDES, sides, strict=True):
        size = len(getattr(tokenizers, name))
        if side.ids.size and not (side.ids.min() >= 0 and side.ids.max() < size):
            raise UserError(f"{path} has ids of no {name} subword (there are {size}): delete it, and it is rebuilt")
    return EncodedCorpus(corpus, *sides)


def encode_part(
    corpus: "datasets.Dataset", tokenizers: Tokenizers, parts: Sequence[Path], number: int, *, num_workers: int
) -> Path:
    """Encode one of `len(parts)` equal parts of a corpus, the `number`-th, into `parts[number]`; return that path.

    There may be no more parts than pairs. Raises as `encode`.
    """
    first, end = (share * len(corpus) // len(parts) for share in (number, number + 1))
    mine = corpus.select(range(first, end))
    with ProgressLog(f"encoding part {number + 1} of {len(parts)}", len(mine)) as progress:
        batches = _encoded_batches(mine, tokenizers, num_workers)
        return stored_table(parts[number], lambda folder: _one_table(batches, folder, progress))


def encoded_path(corpus: "datasets.Dataset", tokenizers: Tokenizers, cache_dir: str | Path) -> Path:
    """Return the path of a corpus's subword ids, whether the file exists yet or not."""
    digest = hashlib.sha256(source_code(TOKENIZATION))
    for tokenizer in (tokenizers.source, tokenizers.target):
        digest.update(hashlib.sha256(tokenizer.model).digest())
    for table in _text(corpus).iter(HASHED_AT_ONCE):
        for batch in table.combine_chunks().to_batches():
            digest.update(batch.serialize())
    return Path(cache_dir).expanduser() / f"encoded-{digest.hexdigest()[:24]}.arrow"


def _text(corpus: "datasets.Dataset") -> "datasets.Dataset":
    return corpus.select_columns(list(SIDES)).with_format("arrow")


def _sides(path: Path) -> tuple[Ragged, ...]:
    """Return the ids of both sides in a file, memory-mapped."""
    sides = [column.chunk(0) for column in mapped_table(path).columns]  # the only one
    return tuple(Ragged(side.values.to_numpy(), side.offsets.to_numpy()) for side in sides)


def _one_table(batches: Iterable[tuple[Ragged, ...]], folder: Path, progress: ProgressLog) -> Iterator[pa.Table]:
    """Make one table of the ids of both sides: large lists, in a single chunk each, so that they are contiguous.

    The ids go to a file for each side as they come, and from there, mapped, into the table.
    """
    lengths: list[list[npt.NDArray[np.int64]]] = [[] for _ in SIDES]
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context((folder / side).open("wb")) for side in SIDES]
        for batch in batches:
            for encoded, file, side_lengths in zip(batch, files, lengths, strict=True):
                encoded.ids.tofile(file)
                side_lengths.append(encoded.lengths)
            progress.add(len(batch[0]))
    columns = []
    for side, side_lengths in zip(SIDES, lengths, strict=True):
        offsets = np.cumsum(np.concatenate(([0], *side_lengths)), dtype=np.int64)
        ids = np.memmap(folder / side, np.int32, "r") if offsets[-1] else np.empty(0, np.int32)
        columns.append(pa.LargeListArray.from_arrays(offsets, ids))
    yield pa.table(columns, names=list(SIDES))


def _encoded_batches(
    corpus: "datasets.Dataset", tokenizers: Tokenizers, num_workers: int
) -> Iterator[tuple[Ragged, ...]]:
    """Yield the ids of both sides, `BATCH_SIZE` pairs at a time, in order."""
    batches = ([table.column(side) for side in SIDES] for table in _text(corpus).iter(BATCH_SIZE))
    num_workers = min(num_workers, len(corpus) // BATCH_SIZE) if len(corpus) >= PARALLEL_FROM else 1
    if num_workers <= 1:
        yield from (_encode_batch(batch, tokenizers) for batch in batches)
        return
    try:
        yield from _encoded_in_parallel(batches, tokenizers, num_workers)
    except BrokenProcessPool:
        raise worker_error("a process that encodes text", "lower data.num_workers") from None


def _encoded_in_parallel(
    batches: Iterable[list[pa.ChunkedArray]], tokenizers: Tokenizers, num_workers: int
) -> Iterator[tuple[Ragged, ...]]:
    with ProcessPoolExecutor(num_workers, initializer=_begin_worker, initargs=(tokenizers,)) as pool:
        waiting: deque[Future[tuple[Ragged, ...]]] = deque()
        for batch in batches:
            waiting.append(pool.submit(_encode_in_worker, batch))
            if len(waiting) > QUEUED * num_workers:  # no more, or the whole text would be in memory
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _encode_batch(sides: list[pa.ChunkedArray], tokenizers: Tokenizers) -> tuple[Ragged, ...]:
    texts = zip((tokenizers.source, tokenizers.target), sides, strict=True)
    return tuple(Ragged.of(tokenizer.encode(side.to_pylist())) for tokenizer, side in texts)


def _encode_in_worker(sides: list[pa.ChunkedArray]) -> tuple[Ragged, ...]:
    return _encode_batch(sides, _worker_tokenizers[-1])


_worker_tokenizers: list[Tokenizers] = []  # of this worker: sent once, not with each batch


def _begin_worker(tokenizers: Tokenizers) -> None:
    begin_worker()
    _worker_tokenizers.append(tokenizers)
