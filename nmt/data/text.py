r"""Parallel text files (`data=text`): one sentence a line, as many lines on each side; plain or gzipped.

A line ends at "\n", or "\r\n", and nowhere else: splitting at U+2028 or a form feed too, as `str.splitlines` does,
would misalign the sides. A newline at the end of a file does not begin another line.
"""

import gzip
import hashlib
import itertools
import math
import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import datasets
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nmt.alignment.pharaoh import check_links, parse_pharaoh
from nmt.alignment.targets import COLUMNS
from nmt.config.schema import SplitConfig
from nmt.data.tables import Corpus, source_code
from nmt.errors import UserError
from nmt.formats import GZIP_MAGIC, utf16_advice

Lengths = npt.NDArray[np.int64]

SMALL = 1 << 20  # bytes that any gzipped file may become
BLOCK = 1 << 20  # bytes that are read at once

# A gap is reported where it explains the lengths better than no gap by this much (sum of log length ratios).
GAP_EVIDENCE = 1.5


class TextCorpus(Corpus):
    """Files of sentences, with gold alignments where `data.<split>.alignment` is set."""

    split_keys = COLUMNS

    def load(self, split: str) -> datasets.Dataset:
        """Return a split, kept in `data.cache_dir` under the digest of its files and of this module's code (see
        `open_split`, `read_split`).
        """
        config = self.split_config(split)
        files = open_split(config, split, self.config.max_gzip_ratio)
        digest = hashlib.sha256(source_code(Path(__file__)))
        for column, parts in files.items():
            for file in parts:
                digest.update(f"{column} {file.path.suffix} {file.size} ".encode())
                with file.open() as content:
                    for block in iter(partial(content.read, BLOCK), b""):
                        digest.update(block)

        def build() -> Iterator[pa.Table]:
            is_empty = True
            for table in read_split(files):
                yield table
                self.progress.add(len(table))
                is_empty = False
            if is_empty:
                raise UserError(f"the {split} split is empty: {config.source} and {config.target} hold no lines")
            for file in itertools.chain.from_iterable(files.values()):
                file.check_unchanged()

        return self.stored(digest.hexdigest(), build)

    def has_split(self, split: str) -> bool:
        return bool(self.split_config(split).source or self.split_config(split).target)

    def has_gold(self, split: str) -> bool:
        return bool(self.split_config(split).alignment)

    def check_files(self, split: str, *, readers: int = 1) -> None:
        for column in COLUMNS:
            value, key = getattr(self.split_config(split), column), f"data.{split}.{column}"
            for path in _paths(value, key) if value else ():
                if not path.exists():
                    raise _no_file(path, key)
                if readers > 1 and path.is_fifo():
                    raise UserError(
                        f"{key}: {path} is a pipe, which one process alone can read: give a file, or train in one"
                    )

    def missing(self, split: str) -> UserError:
        return UserError(f"no {split} text: set data.{split}.source and data.{split}.target")


class TextFile:
    """A file of sentences that can be read repeatedly, in blocks; a pipe, which can be read only once, is copied.

    A gzipped one may become at most `max_gzip_ratio` times as large. Raises OSError if it cannot be read.
    """

    def __init__(self, path: Path, max_gzip_ratio: float = math.inf) -> None:
        self.path = path
        self.max_gzip_ratio = max_gzip_ratio
        self._copy: BinaryIO | None = None
        with path.open("rb") as file:
            self._identity = file_identity(file)
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                self._copy = tempfile.TemporaryFile()  # noqa: SIM115
                shutil.copyfileobj(file, self._copy)
        self.size = self._identity[0] if self._copy is None else self._copy.tell()

    def open(self) -> AbstractContextManager[BinaryIO]:
        """Open its bytes, at their beginning."""
        if self._copy is None:
            return self.path.open("rb")
        self._copy.seek(0)
        return nullcontext(self._copy)

    def check_unchanged(self) -> None:
        """Raise UserError if the file was written since it was opened first."""
        if self._copy is None:
            with self.open() as file:
                if file_identity(file) != self._identity:
                    raise UserError(f"{self.path} was changed while it was read: start again when it is complete")

    def blocks(self) -> Iterator[list[str]]:
        """Yield the lines, without line ends, some at a time; raise UserError for bytes that are not UTF-8 (with line
        and byte), or not the gzip that name or first bytes claim, or one that becomes too large.
        """
        rest, position, number = bytearray(), 0, 0
        for part in itertools.chain(self._unpacked(), (b"",)):
            end = part.rfind(b"\n") + 1 if part else 0
            if part and not end:
                rest += part
                continue
            content, rest = bytes(rest) + part[:end], bytearray(part[end:])
            if content:
                lines = self._decoded(content, position, number)
                yield lines
                position, number = position + len(content), number + len(lines)

    def _decoded(self, content: bytes, position: int, number: int) -> list[str]:
        """Decode a block into lines; `position` bytes and `number` lines precede it (for error messages)."""
        if position == 0 and (advice := utf16_advice(content)):
            raise UserError(f"{self.path} is {advice}")
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(self.path, content, error.start, position, number) from None
        lines = text.removeprefix("\ufeff" if position == 0 else "").split("\n")
        if not lines[-1]:
            lines.pop()
        return [line.removesuffix("\r") for line in lines] if "\r" in text else lines

    def _unpacked(self) -> Iterator[bytes]:
        with self.open() as file:
            is_packed = self.path.suffix == ".gz" or file.read(2) == GZIP_MAGIC
            file.seek(0)
            if not is_packed:
                yield from iter(partial(file.read, BLOCK), b"")
                return
            limit, size = SMALL + self.max_gzip_ratio * self.size, 0
            try:
                if not self.size:  # to the library an empty file is one without content
                    raise EOFError("it is empty")
                for block in iter(partial(gzip.GzipFile(fileobj=file).read, BLOCK), b""):
                    size += len(block)
                    if size > limit:
                        break
                    yield block
            except (OSError, EOFError, zlib.error) as error:
                raise UserError(
                    f"{self.path} is not a readable gzip file ({error}): write it again, or drop the .gz of a plain "
                    "file"
                ) from None
        if size > limit:
            raise UserError(
                f"{self.path} becomes more than {self.max_gzip_ratio:g} times as large when it is unpacked, as text "
                "hardly does: if it is what you want to read, raise data.max_gzip_ratio"
            )


def file_identity(file: BinaryIO) -> tuple[int, int]:
    """Return the size and the time of the last change of an open file."""
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def open_split(config: SplitConfig, split: str, max_gzip_ratio: float = math.inf) -> dict[str, list[TextFile]]:
    """Open the files of a split, by column: source, target and, where given, alignment; raise UserError for a missing
    key, a file that is missing, cannot be read or is a folder, or columns with different numbers of files.
    """
    if not (config.source and config.target):
        missing = [f"data.{split}.{side}" for side in ("source", "target") if not getattr(config, side)]
        raise UserError(
            f"data=text has no files for the {split} split: set {' and '.join(f'{key}=FILE' for key in missing)}"
        )
    files = {}
    for column in COLUMNS:
        if value := getattr(config, column):
            key = f"data.{split}.{column}"
            files[column] = [_open(path, key, max_gzip_ratio) for path in _paths(value, key)]
    for column, others in files.items():
        if len(others) != len(files["source"]):
            raise UserError(
                f"data.{split}.source names {len(files['source'])} files but data.{split}.{column} {len(others)}: "
                "list the same number, in the same order"
            )
    return files


def read_split(files: dict[str, list[TextFile]]) -> Iterator[pa.Table]:
    """Yield the lines of each column, over all its files, in tables of about a megabyte; raise UserError for columns of
    different line counts (naming both, and the first line where they seem to differ), a malformed alignment or one that
    points outside its sentences, and as `TextFile.blocks`.
    """
    for together in zip(*files.values(), strict=True):
        yield from _read_together(dict(zip(files, together, strict=True)))


def _read_together(files: dict[str, TextFile]) -> Iterator[pa.Table]:
    """Yield the lines of files that belong together, one for each column."""
    streams = {column: file.blocks() for column, file in files.items()}
    waiting: dict[str, list[str]] = {column: [] for column in files}
    number = 0
    while True:
        waiting = {column: lines or next(streams[column], []) for column, lines in waiting.items()}
        count = min(map(len, waiting.values()))
        if count == 0:
            break
        lines = {column: each[:count] for column, each in waiting.items()}
        if "alignment" in lines:
            _check_alignment(lines, files["alignment"].path, number)
        yield pa.table(lines, schema=pa.schema([(column, pa.string()) for column in lines]))
        waiting = {column: each[count:] for column, each in waiting.items()}
        number += count
    if any(waiting.values()):
        raise _out_of_step(files)


def _paths(value: Any, key: str) -> list[Path]:
    names = [value] if isinstance(value, str | Path) else value
    if not (isinstance(names, list | tuple) and all(isinstance(name, str | Path) for name in names)):
        raise UserError(f"{key}={value!r} must be a file or a list of files")
    return [Path(name).expanduser() for name in names]


def _no_file(path: Path, key: str) -> UserError:
    return UserError(f"{key}: no such file: {path} (looked for in {Path.cwd()})")


def _open(path: Path, key: str, max_gzip_ratio: float) -> TextFile:
    try:
        return TextFile(path, max_gzip_ratio)
    except FileNotFoundError:
        raise _no_file(path, key) from None
    except IsADirectoryError:
        raise UserError(f"{key}: {path} is a folder: give a file of sentences, one per line") from None
    except OSError as error:
        raise UserError(f"{key}: cannot read {path}: {error.strerror}") from None


def _not_utf8(path: Path, content: bytes, start: int, position: int, number: int) -> UserError:
    line = number + content.count(b"\n", 0, start) + 1
    column = start - content.rfind(b"\n", 0, start)
    return UserError(
        f"{path} is not UTF-8: line {line}, byte {column} of the line (byte {position + start + 1} of the text) is "
        f"0x{content[start]:02x}; convert it, e.g. with iconv -f LATIN1 -t UTF-8"
    )


def _out_of_step(files: dict[str, TextFile]) -> UserError:
    """Return the error for files with different numbers of lines, which are read once more to find the place."""
    lengths = {column: _lengths(file) for column, file in files.items()}
    source, target = lengths["source"], lengths["target"]
    if len(source) == len(target):
        num_alignments = len(lengths["alignment"])
        return UserError(
            f"{files['alignment'].path} has {num_alignments} lines but {files['source'].path} has {len(source)}: "
            f"line {min(num_alignments, len(source)) + 1} is the first without a counterpart"
        )
    paths = files["source"].path, files["target"].path
    counts = f"{paths[0]} has {len(source)} lines but {paths[1]} has {len(target)}"
    place = _first_difference(source, target)
    if place < min(len(source), len(target)):
        where = f"they seem to fall out of step at line {place + 1}"
    else:
        where = f"line {place + 1} of {paths[len(target) > len(source)]} is the first without a counterpart"
    return UserError(f"{counts}: {where}")


def _lengths(file: TextFile) -> Lengths:
    """Return the number of characters of each line, without white space around it."""
    return np.fromiter((len(line.strip()) for lines in file.blocks() for line in lines), np.int64)


def _first_difference(source: Lengths, target: Lengths) -> int:
    """Return the first line (from 0) where the sides seem to differ; the shorter side's number of lines if none does.

    That is the first line that is empty on one side only, or the start of a gap: the k that minimizes the misfit of
    lines [0, k) as they are and lines [k, n) shifted by the difference in line counts, if that is below the misfit
    without a gap by `GAP_EVIDENCE`. The misfit of a pair is |log length ratio - its median|.
    """
    shorter, longer = sorted((source, target), key=len)
    count, shift = len(shorter), len(longer) - len(shorter)
    short, long = np.log1p(shorter), np.log1p(longer)
    one_sided = np.flatnonzero((short == 0) != (long[:count] == 0))
    place = int(one_sided[0]) if len(one_sided) else count
    if count:
        ratio = np.median(long[:count] - short)
        in_step = np.cumsum([0.0, *np.abs(long[:count] - short - ratio)])
        shifted = np.cumsum([0.0, *np.abs(long[shift:] - short - ratio)])
        misfit = in_step + shifted[-1] - shifted
        gap = int(np.argmin(misfit))
        if misfit[gap] + GAP_EVIDENCE < misfit[-1]:
            place = min(place, gap)
    return place


def _check_alignment(lines: dict[str, list[str]], path: Path, before: int) -> None:
    """Raise UserError unless every pair has a line of links, well formed and within the pair's words."""
    columns = (lines[column] for column in COLUMNS)
    for number, (source, target, line) in enumerate(zip(*columns, strict=True), start=before + 1):
        where = f"{path}, line {number}"
        check_links(parse_pharaoh(line, where), len(source.split()), len(target.split()), where)
