"""Corpora as tables on disk: text and its subword ids, written atomically, memory-mapped."""

import contextlib
import hashlib
import logging
import os
import shutil
import socket
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import datasets
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nmt.config.schema import DataConfig, SplitConfig
from nmt.errors import UserError
from nmt.text.tokenizer import Tokenizers

logger = logging.getLogger(__name__)

SPLITS = ("train", "validation", "test", "test_long")
SIDES = ("source", "target")
BATCH_SIZE = 1_000
HASHED_AT_ONCE = 100_000
PARALLEL_FROM = 20_000  # pairs; for fewer, starting processes takes longer than encoding


class Corpus(ABC):
    """Parallel text, as `DataConfig` describes it; each kind is a subclass, registered in `nmt.data.corpus.CORPORA`.

    `split_keys` are the keys of `data.<split>` (`SplitConfig`) that the kind reads; setting any other is an error.
    """

    split_keys: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: DataConfig) -> None:
        self.config = config

    @abstractmethod
    def load(self, split: str) -> datasets.Dataset:
        """Return a split, memory-mapped: text columns source, target and, where there is gold, alignment (Pharaoh).

        Raises:
            UserError: when the split does not exist or cannot be read.
        """

    @abstractmethod
    def has_split(self, split: str) -> bool:
        """Whether the split is configured: `load` then returns it, or reports what is wrong with it."""

    @abstractmethod
    def has_gold(self, split: str) -> bool:
        """Whether the split has gold alignments."""

    def check_files(self, split: str) -> None:  # noqa: B027
        """Raise `UserError` for a file of the split that does not exist; nothing is read."""

    def missing(self, split: str) -> UserError:
        """Return the error for a split that is needed but not configured."""
        return UserError(f"data={self.config.kind} has no {split} split")

    def split_config(self, split: str) -> SplitConfig:
        """Return `data.<split>`, which is empty for test_long."""
        config: SplitConfig = getattr(self.config, split, SplitConfig())
        return config

    def stored(self, digest: str, build: Callable[[], pa.Table]) -> datasets.Dataset:
        """Return the table that `build` makes, stored in `data.cache_dir` under a digest of its content."""
        path = Path(self.config.cache_dir) / f"corpus-{digest[:24]}.arrow"
        return datasets.Dataset.from_file(str(stored_table(path, lambda _: build())))


def stored_table(path: Path, build: Callable[[Path], pa.Table]) -> Path:
    """Return `path`, after writing the table that `build` returns there unless the file exists already, undamaged.

    A table is accepted if its digest is that in the file beside it, PATH.sha256; reading it takes about a second a
    gigabyte.

    The file is written as a temporary sibling and renamed, so it is never seen incomplete. Several processes may do
    this at once; the last rename wins, so the name must be determined by the content. `build` is given a folder for
    temporary files that is deleted afterwards.

    Raises:
        UserError: when the folder cannot be made or written.
    """
    if is_intact(path):
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(path) as folder:
            table = build(folder)
            complete = folder / path.name
            with pa.OSFile(str(complete), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table)
            digest = folder / "digest"
            digest.write_text(digest_of(complete), encoding="ascii")
            # In this order: a table without its digest would be made anew.
            digest.replace(digest_file(path))
            complete.replace(path)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; choose another folder with data.cache_dir"
        ) from None
    return path


@contextlib.contextmanager
def temporary_folder(place: Path) -> Iterator[Path]:
    """Yield a new folder beside `place`, named .NAME.HOST.PROCESS-..., and delete it afterwards.

    Those that killed processes of this machine have left for the same place are deleted first.
    """
    for left in leftovers(place):
        shutil.rmtree(left, ignore_errors=True)
    prefix = f".{place.name}.{socket.gethostname()}.{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=place.parent) as folder:
        yield Path(folder)


def leftovers(place: Path) -> list[Path]:
    """Return the temporary folders for a place whose process on this machine has ended."""
    start = f".{place.name}.{socket.gethostname()}."
    found = [each for each in place.parent.glob(".*") if each.name.startswith(start)]
    return [each for each in found if not is_alive(each.name.removeprefix(start).split("-")[0])]


def is_alive(process: str) -> bool:
    """Tell whether a process of this machine is running; also of what is no number."""
    if not process.isdecimal():
        return True
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to somebody else
        return True
    return True


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal; a gigabyte takes about a second."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_file(path: Path) -> Path:
    """Return the path of the digest of a table."""
    return path.with_name(f"{path.name}.sha256")


def is_intact(path: Path) -> bool:
    """Tell whether a table exists and has the content that was written; a damaged one is named in the log."""
    if not (path.exists() and digest_file(path).exists()):
        return False
    if digest_file(path).read_bytes() == digest_of(path).encode():
        return True
    logger.warning("%s is damaged and is made anew", path)
    return False


def mapped_table(path: Path) -> pa.Table:
    """Return the table in a file that `stored_table` wrote, memory-mapped."""
    return pa.ipc.open_stream(pa.memory_map(str(path))).read_all()


@contextlib.contextmanager
def progress_on_terminals_only() -> Iterator[None]:
    """Disable the progress bars of `datasets` where standard error is a file or a pipe."""
    if sys.stderr.isatty() or datasets.are_progress_bars_disabled():
        yield
        return
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.enable_progress_bars()


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

    corpus: datasets.Dataset
    source: Ragged
    target: Ragged

    def __len__(self) -> int:
        return len(self.corpus)

    def pairs(self, rows: npt.NDArray[np.integer]) -> tuple[list[npt.NDArray[np.int32]], list[npt.NDArray[np.int32]]]:
        """Return the ids of the sources and of the targets of some pairs."""
        numbers = rows.tolist()
        return [self.source[row] for row in numbers], [self.target[row] for row in numbers]


def encode(
    corpus: datasets.Dataset, tokenizers: Tokenizers, *, cache_dir: str | Path, num_workers: int
) -> EncodedCorpus:
    """Return the corpus (columns source and target) with its subword ids, from `cache_dir` if it is encoded there.

    Files are named by a digest of the text and the models. `num_workers` processes encode; a small corpus, this one.

    Raises:
        UserError: when `cache_dir` cannot be written, or the file there has ids that the models do not have.
    """
    text = corpus.select_columns(list(SIDES)).with_format("arrow")
    path = Path(cache_dir) / f"encoded-{_digest(text, tokenizers)[:24]}.arrow"
    table = mapped_table(stored_table(path, lambda folder: _encoded(text, tokenizers, num_workers, folder)))
    lists = [part for column in table.columns for part in column.chunks]  # each column is a single chunk
    sides = [Ragged(side.values.to_numpy(), side.offsets.to_numpy()) for side in lists]
    for name, side in zip(SIDES, sides, strict=True):
        size = len(getattr(tokenizers, name))
        if side.ids.size and not (side.ids.min() >= 0 and side.ids.max() < size):
            raise UserError(f"{path} has ids of no {name} subword (there are {size}): delete it, and it is made anew")
    return EncodedCorpus(corpus, *sides)


def _digest(text: datasets.Dataset, tokenizers: Tokenizers) -> str:
    digest = hashlib.sha256()
    for tokenizer in (tokenizers.source, tokenizers.target):
        digest.update(hashlib.sha256(tokenizer.model).digest())
    for table in text.iter(HASHED_AT_ONCE):
        for batch in table.combine_chunks().to_batches():
            digest.update(batch.serialize())
    return digest.hexdigest()


def _encoded(text: datasets.Dataset, tokenizers: Tokenizers, num_workers: int, folder: Path) -> pa.Table:
    """Encode both sides into large lists, in a single chunk each, so that their values are contiguous."""
    features = datasets.Features({side: datasets.LargeList(datasets.Value("int32")) for side in SIDES})
    num_proc = min(num_workers, len(text) // BATCH_SIZE) if len(text) >= PARALLEL_FROM else 1
    with progress_on_terminals_only():
        lists = text.map(
            _encode_batch,
            batched=True,
            batch_size=BATCH_SIZE,
            fn_kwargs={"tokenizers": tokenizers},
            features=features,
            num_proc=num_proc if num_proc > 1 else None,
            cache_file_name=str(folder / "encoded.arrow"),
            new_fingerprint="encoded",
            load_from_cache_file=False,
            desc="encoding",
        )
        columns = [lists.data.column(side).combine_chunks() for side in SIDES]
    return pa.table(columns, names=list(SIDES))


def _encode_batch(table: pa.Table, tokenizers: Tokenizers) -> pa.Table:
    columns = []
    for side in SIDES:
        sequences = Ragged.of(getattr(tokenizers, side).encode(table.column(side).to_pylist()))
        columns.append(pa.LargeListArray.from_arrays(sequences.offsets, sequences.ids))
    return pa.table(columns, names=list(SIDES))
