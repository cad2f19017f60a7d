r"""Parallel text files (`data=text`): one sentence a line, as many lines on each side; plain or gzipped.

A line ends at "\n", or "\r\n", and nowhere else: splitting at U+2028 or a form feed too, as `str.splitlines` does,
would misalign the sides. A newline at the end of a file does not begin another line.
"""

import gzip
import hashlib
import io
import math
import zlib
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa

from nmt.alignment.pharaoh import check_links, parse_pharaoh
from nmt.config.schema import SplitConfig
from nmt.data.tables import Corpus
from nmt.errors import UserError

SMALL = 1 << 20  # bytes that any gzipped file may become
COLUMNS = ("source", "target", "alignment")

# A gap is reported where it explains the lengths better than no gap by this much (sum of log length ratios).
GAP_EVIDENCE = 1.5


class TextCorpus(Corpus):
    """Files of sentences, with gold alignments where `data.<split>.alignment` is set."""

    split_keys = COLUMNS

    def load(self, split: str) -> datasets.Dataset:
        """Return a split, kept in `data.cache_dir` under the digest of its files (see `open_split`, `read_split`)."""
        config = self.split_config(split)
        files = open_split(config, split, self.config.max_gzip_ratio)
        digest = hashlib.sha256()
        for column, parts in files.items():
            for file in parts:
                digest.update(f"{column} {file.path.suffix} {len(file.content)} ".encode())
                digest.update(file.content)

        def build() -> pa.Table:
            lines = read_split(files)
            if not lines["source"]:
                raise UserError(f"the {split} split is empty: {config.source} and {config.target} hold no lines")
            return pa.table(lines)

        return self.stored(digest.hexdigest(), build)

    def has_split(self, split: str) -> bool:
        return bool(self.split_config(split).source or self.split_config(split).target)

    def has_gold(self, split: str) -> bool:
        return bool(self.split_config(split).alignment)

    def check_files(self, split: str) -> None:
        for column in COLUMNS:
            value, key = getattr(self.split_config(split), column), f"data.{split}.{column}"
            for path in _paths(value, key) if value else ():
                if not path.exists():
                    raise _no_file(path, key)

    def missing(self, split: str) -> UserError:
        return UserError(f"no {split} text: set data.{split}.source and data.{split}.target")


@dataclass(frozen=True)
class TextFile:
    """A file of sentences: its bytes (read once, so a pipe works), decoded when its lines are asked for."""

    path: Path
    content: bytes
    max_gzip_ratio: float = math.inf

    @cached_property
    def lines(self) -> list[str]:
        """The lines, without line ends.

        Raises:
            UserError: when the bytes are not UTF-8 (with line and byte), not the gzip that its name claims, or a gzip
                that becomes more than `max_gzip_ratio` times as large.
        """
        content = self._decompressed()
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(self.path, content, error.start) from None
        lines = text.removeprefix("\ufeff").split("\n")
        if not lines[-1]:
            lines.pop()
        return [line.removesuffix("\r") for line in lines]

    def _decompressed(self) -> bytes:
        if self.path.suffix != ".gz" and not self.content.startswith(b"\x1f\x8b"):
            return self.content
        limit = SMALL + self.max_gzip_ratio * len(self.content)
        parts, size = [], 0
        try:
            with gzip.open(io.BytesIO(self.content)) as file:
                while (part := file.read(SMALL)) and size <= limit:
                    parts.append(part)
                    size += len(part)
            if size <= limit:
                return b"".join(parts)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(
                f"{self.path} is not a readable gzip file ({error}): write it again, or drop the .gz of a plain file"
            ) from None
        raise UserError(
            f"{self.path} becomes more than {self.max_gzip_ratio:g} times as large when it is unpacked, as text hardly "
            "does: if it is what you want to read, raise data.max_gzip_ratio"
        )


def open_split(config: SplitConfig, split: str, max_gzip_ratio: float = math.inf) -> dict[str, list[TextFile]]:
    """Read the files of a split, by column: source, target and, where given, alignment.

    Args:
        config: names the files.
        split: its name.
        max_gzip_ratio: how many times as large a gzipped file may become.

    Raises:
        UserError: for a missing key, a missing file, a folder, or columns with different numbers of files.
    """
    if not (config.source and config.target):
        missing = [f"data.{split}.{side}" for side in ("source", "target") if not getattr(config, side)]
        raise UserError(
            f"data=text has no files for the {split} split: set {' and '.join(f'{key}=FILE' for key in missing)}"
        )
    given = {column: getattr(config, column) for column in COLUMNS if getattr(config, column)}
    files = {
        column: [replace(file, max_gzip_ratio=max_gzip_ratio) for file in _open(value, f"data.{split}.{column}")]
        for column, value in given.items()
    }
    for column, others in files.items():
        if len(others) != len(files["source"]):
            raise UserError(
                f"data.{split}.source names {len(files['source'])} files but data.{split}.{column} {len(others)}: "
                "list the same number, in the same order"
            )
    return files


def read_split(files: dict[str, list[TextFile]]) -> dict[str, list[str]]:
    """Return the lines of each column, concatenated over its files.

    Raises:
        UserError: for sides of different line counts (naming both, and the first line where they seem to differ), a
            malformed alignment or one that points outside its sentences, and see `TextFile.lines`.
    """
    for source, target in zip(files["source"], files["target"], strict=True):
        if len(source.lines) != len(target.lines):
            raise _out_of_step(source, target)
    for source, target, alignment in zip(files["source"], files["target"], files.get("alignment", ()), strict=False):
        _check_alignment(source, target, alignment)
    return {column: [line for file in parts for line in file.lines] for column, parts in files.items()}


def _open(value: Any, key: str) -> list[TextFile]:
    return [_read(path, key) for path in _paths(value, key)]


def _paths(value: Any, key: str) -> list[Path]:
    names = [value] if isinstance(value, str | Path) else value
    if not (isinstance(names, list | tuple) and all(isinstance(name, str | Path) for name in names)):
        raise UserError(f"{key}={value!r} must be a file or a list of files")
    return [Path(name).expanduser() for name in names]


def _no_file(path: Path, key: str) -> UserError:
    return UserError(f"{key}: no such file: {path} (looked for in {Path.cwd()})")


def _read(path: Path, key: str) -> TextFile:
    try:
        return TextFile(path, path.read_bytes())
    except FileNotFoundError:
        raise _no_file(path, key) from None
    except IsADirectoryError:
        raise UserError(f"{key}: {path} is a folder: give a file of sentences, one a line") from None
    except OSError as error:
        raise UserError(f"{key}: cannot read {path}: {error.strerror}") from None


def _not_utf8(path: Path, content: bytes, start: int) -> UserError:
    line = content.count(b"\n", 0, start) + 1
    column = start - content.rfind(b"\n", 0, start)
    return UserError(
        f"{path} is not UTF-8: line {line}, byte {column} of the line (byte {start + 1} of the text) is "
        f"0x{content[start]:02x}; convert it, e.g. with iconv -f LATIN1 -t UTF-8"
    )


def _out_of_step(source: TextFile, target: TextFile) -> UserError:
    counts = f"{source.path} has {len(source.lines)} lines but {target.path} has {len(target.lines)}"
    place = _first_difference(source.lines, target.lines)
    if place < min(len(source.lines), len(target.lines)):
        where = f"they seem to fall out of step at line {place + 1}"
    else:
        longer = max(source, target, key=lambda file: len(file.lines))
        where = f"line {place + 1} of {longer.path} is the first without a counterpart"
    return UserError(f"{counts}: {where}")


def _first_difference(source: list[str], target: list[str]) -> int:
    """Return the first line (from 0) where the sides seem to differ; the shorter side's number of lines if none does.

    That is the first line that is empty on one side only, or the start of a gap: the k that minimizes the misfit of
    lines [0, k) as they are and lines [k, n) shifted by the difference in line counts, if that is below the misfit
    without a gap by `GAP_EVIDENCE`. The misfit of a pair is |log length ratio - its median|.
    """
    shorter, longer = sorted(([len(line.strip()) for line in side] for side in (source, target)), key=len)
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


def _check_alignment(source: TextFile, target: TextFile, alignment: TextFile) -> None:
    """Raise UserError unless every pair has a line of links, well formed and within the pair's words."""
    pairs = zip(source.lines, target.lines, strict=True)
    for number, (line, (left, right)) in enumerate(zip(alignment.lines, pairs, strict=False), start=1):
        where = f"{alignment.path}, line {number}"
        check_links(parse_pharaoh(line, where), len(left.split()), len(right.split()), where)
    given, needed = len(alignment.lines), len(source.lines)
    if given != needed:
        raise UserError(
            f"{alignment.path} has {given} lines but {source.path} has {needed}: "
            f"line {min(given, needed) + 1} is the first without a counterpart"
        )
