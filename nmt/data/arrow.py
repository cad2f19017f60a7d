"""Arrow tables on disk: written once, atomically, and memory-mapped by whoever needs them."""

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import datasets
import pyarrow as pa

from nmt.errors import UserError


def stored_table(path: Path, build: Callable[[Path], pa.Table]) -> Path:
    """Return `path`, after writing the table that `build` returns there unless the file exists already.

    The file appears complete or not at all, and two processes may do this at once: each writes a temporary
    sibling, and the last to rename it wins. So the name must follow from the content.

    Args:
        path: where the table is, or is to be.
        build: makes the table; it is given a folder for temporary files, which is gone afterwards.

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
    """Return the table in a file that `stored_table` wrote; its memory is the file, read as it is touched."""
    return pa.ipc.open_stream(pa.memory_map(str(path))).read_all()


@contextlib.contextmanager
def progress_on_terminals_only() -> Iterator[None]:
    """Hide the progress bars of `datasets` where standard error is a file or a pipe."""
    if sys.stderr.isatty() or datasets.are_progress_bars_disabled():
        yield
        return
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.enable_progress_bars()
