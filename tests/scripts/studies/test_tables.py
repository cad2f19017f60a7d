"""Tables as CSV and on the terminal."""

import os
from pathlib import Path
from typing import Any

import pytest

from nmt.errors import UserError
from studies.tables import format_cell, print_table, write_rows, write_table

ROWS: list[dict[str, Any]] = [{"name": "a,b", "speed": 12345.678, "count": 3}, {"name": "c", "speed": None, "count": 4}]


def test_rows_are_written_as_they_come(tmp_path: Path) -> None:
    file = tmp_path / "new" / "table.csv"
    written = write_rows(iter(ROWS), file)
    assert next(written) is ROWS[0]
    assert file.read_text() == 'name,speed,count\n"a,b",12345.7,3\n'
    assert list(written) == ROWS[1:]
    assert file.read_text().splitlines()[2] == "c,,4"


def test_no_rows_make_an_empty_file(tmp_path: Path) -> None:
    write_table([], tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == ""


def test_an_older_table_is_kept_until_there_is_a_row(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text("older\n" * 100)
    with pytest.raises(UserError, match="a mistake"):
        write_table((mistake() for _ in range(1)), file)
    assert file.read_text() == "older\n" * 100
    write_table(ROWS, file)
    assert file.read_text() == 'name,speed,count\n"a,b",12345.7,3\nc,,4\n'


def test_a_table_can_be_written_to_a_device() -> None:
    write_table(ROWS, Path(os.devnull))


def mistake() -> dict[str, Any]:
    raise UserError("a mistake in the settings")


def test_a_table_is_printed_with_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{"tokens_per_second": 12345.678}], "speed")
    printed = capsys.readouterr().out
    assert "tokens per second" in printed
    assert "12,346" in printed


@pytest.mark.parametrize(
    ("value", "cell"),
    [(None, ""), (0.12345, "0.1235"), (98.7, "98.7"), (12345.678, "12,346"), (7, "7"), (20000, "20,000"), ("a", "a")],
)
def test_cells(value: object, cell: str) -> None:
    assert format_cell(value) == cell
