"""The records of a run, a JSON object per line: `metrics.jsonl` and `alignments.jsonl`."""

import json
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nmt.data.tables import temporary_folder
from nmt.errors import write_errors

logger = logging.getLogger(__name__)

RECORDS = "metrics.jsonl"
ALIGNMENTS = "alignments.jsonl"  # of the sample sentences, as they change; form: `nmt.training.reporting.as_record`


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file, if there is one, without lines that are damaged."""
    return [record for line in record_lines(path) if (record := parse_record(line)) is not None]


def keep_records(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> None:
    """Drop records that are not wanted, and lines that are damaged or that a crash left incomplete; raise UserError if
    the file cannot be written, and leave it as it was. A warning counts damaged lines.
    """
    lines = record_lines(path)
    if damaged := sum(line.endswith(b"\n") and parse_record(line) is None for line in lines):
        logger.warning("%s: lines that hold no record are dropped: %d", path, damaged)
    kept = [line for line in lines if (record := parse_record(line)) is not None and wanted(record)]
    if kept != lines:
        with write_errors(path), temporary_folder(path) as folder:
            (folder / path.name).write_bytes(b"".join(kept))
            (folder / path.name).replace(path)


def record_lines(path: Path) -> list[bytes]:
    """Return the lines of a file, with their ends; none if there is no file."""
    return path.read_bytes().splitlines(keepends=True) if path.is_file() else []


def parse_record(line: bytes) -> dict[str, Any] | None:
    """Return the record of an update that a line holds; None if it is incomplete, or something else."""
    try:
        record = json.loads(line)
    except (ValueError, OverflowError, RecursionError):
        return None
    is_record = isinstance(record, dict) and ("event" in record or "sample" in record)
    return record if is_record and line.endswith(b"\n") and isinstance(record.get("step"), int) else None


def finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None, at any depth."""
    if isinstance(value, Mapping):
        return {key: finite(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
