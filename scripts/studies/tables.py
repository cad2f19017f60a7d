"""Tables of measurements: as a CSV file, and on the terminal."""

import csv
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from nmt.errors import write_errors

WIDTH = 170  # columns, if the output is not a terminal
TABLE, FIGURE = "table.csv", "figure.png"  # files of a study

Row = Mapping[str, Any]
AnyRow = TypeVar("AnyRow", bound=Row)


def write_rows(rows: Iterable[AnyRow], path: Path) -> Iterator[AnyRow]:
    """Write rows with the columns of the first to a CSV file, each as it comes, and yield them; None is left empty.

    An older file is replaced when the first row comes, so that a mistake does not empty it. Raises UserError, before
    the first row, if the file cannot be written.
    """
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = path.open("a", encoding="utf-8", newline="")
    with opened as file:
        writer = csv.writer(file)
        for number, row in enumerate(rows):
            if number == 0:
                if path.is_file():  # a device, or a pipe, cannot be emptied
                    file.truncate(0)
                writer.writerow(row)
            writer.writerow(f"{value:.6g}" if isinstance(value, float) else value for value in row.values())
            file.flush()
            yield row


def write_table(rows: Iterable[Row], path: Path) -> None:
    """Write all rows, as `write_rows`."""
    deque(write_rows(rows, path), maxlen=0)


def print_table(rows: Sequence[Row], title: str) -> None:
    """Print rows with the columns of the first."""
    table = Table(title=title, title_justify="left")
    for name, value in rows[0].items():
        table.add_column(name.replace("_", " "), justify="left" if isinstance(value, str) else "right")
    for row in rows:
        table.add_row(*map(format_cell, row.values()))
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)


def format_cell(value: Any) -> str:
    """Return a cell as text: numbers with four digits or thousands separated, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, float) and abs(value) < 1_000:
        return f"{value:.4g}"
    return f"{value:,.0f}" if isinstance(value, float | int) and not isinstance(value, bool) else str(value)


def report(
    rows: Sequence[Row],
    draw: Callable[[Path], None],
    folder: Path,
    *,
    title: str,
    summary: Sequence[Row] | None = None,
) -> None:
    """Write the table and the figure of a study into its folder, and print the table.

    Args:
        rows: of the table.
        draw: a function that draws the figure into a file.
        folder: of the study.
        title: of the printed table.
        summary: rows to print instead, if the table is long.
    """
    write_table(rows, folder / TABLE)
    draw(folder / FIGURE)
    print_table(rows if summary is None else summary, title)
    print(f"table: {folder / TABLE}   figure: {folder / FIGURE}")
