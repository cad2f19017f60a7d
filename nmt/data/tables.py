"""The interface of a corpus, and its tables on disk: Arrow files, written atomically and memory-mapped."""

import contextlib
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import datasets
import pyarrow as pa

from nmt.config.schema import DataConfig, SplitConfig
from nmt.errors import UserError

SPLITS = ("train", "validation", "test", "test_long")


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
    """Return `path`, after writing the table that `build` returns there unless the file exists already.

    The file is written as a temporary sibling and renamed, so it is never seen incomplete. Several processes may do
    this at once; the last rename wins, so the name must be determined by the content.

    Args:
        path: the file of the table.
        build: makes the table, given a folder for temporary files that is deleted afterwards.

    Raises:
        UserError: when the folder cannot be made or written.
    """
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.stem}-", dir=path.parent) as folder:
            table = build(Path(folder))
            complete = Path(folder) / path.name
            with pa.OSFile(str(complete), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table)
            complete.replace(path)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; choose another folder with data.cache_dir"
        ) from None
    return path


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
