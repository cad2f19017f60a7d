"""Labeled text: sentences, or pairs of sentences, with a class each, from files or the Hugging Face hub."""

import argparse
import csv
import glob
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import datasets

from nmt.config.schema import HubConfig
from nmt.data.hub import check_utf8, prepared_builder, read_split
from nmt.errors import UserError, nearest
from nmt.models.hub import SCHEME
from studies.study import log

INSTEAD_OF_HUB = "a file of your own"
# By the suffix of a file: the builder of `datasets`, and its options. Cells of tab-separated files are not quoted, as
# in those of GLUE and SNLI, in whose sentences single quotation marks occur.
TABS: dict[str, Any] = {"sep": "\t", "quoting": csv.QUOTE_NONE}
FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    ".csv": ("csv", {}),
    ".tsv": ("csv", TABS),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".parquet": ("parquet", {}),
}
NO_LABEL = ("", "-", "-1")  # in place of a label: an empty cell, SNLI's mark, that of the hub's unlabeled splits
MAX_CLASSES = 1_000  # more are a column of texts or numbers
HELD_OUT = 5  # one in so many rows is for the test

Example = TypeVar("Example")


class Data(NamedTuple, Generic[Example]):
    """Examples to train on and to test, and the names of the classes."""

    train: list[Example]
    test: list[Example]
    classes: Sequence[str]


@dataclass(frozen=True)
class LabeledCorpus:
    """Texts with their classes.

    Attributes:
        texts: the strings of each example, one or two.
        labels: the class of each example, an index into `classes`.
        classes: the names of the classes.
        dropped: the number of rows that had no label.
    """

    texts: list[tuple[str, ...]]
    labels: list[int]
    classes: list[str]
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.labels)


def add_data(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the options that name labeled text; the help calls it `what`."""
    add = parser.add_argument
    add("--data", metavar="SOURCE", help=f"labeled {what}: a file, hub:NAME or hub:NAME:CONFIG")
    add("--split", metavar="NAME", help="to train on, or a slice such as 'train[:1000]' (default: train)")
    add("--test", metavar="SOURCE", help=f"labeled {what} to test on")
    add("--test-split", metavar="NAME", help="to test on (default: of a data set of the hub, test)")


def check_data(options: argparse.Namespace) -> None:
    """Raise UserError for an option of labeled text without --data: the built-in data would be taken instead."""
    for name in ("split", "test", "test_split"):
        if getattr(options, name) is not None and options.data is None:
            raise UserError(f"--{name.replace('_', '-')} belongs to --data: give that too, or leave it out")


def read_data(
    options: argparse.Namespace,
    columns: Callable[[str], tuple[Sequence[str], str]],
    make: Callable[[tuple[str, ...], int], Example],
) -> Data[Example]:
    """Read the labeled text that the options name.

    Args:
        options: those of `add_data`.
        columns: returns the names of the columns of texts and of labels in a source.
        make: makes an example of texts and a class.

    Raises:
        UserError: as `load_labeled`, or no row is left to hold out.
    """

    def read(source: str, split: str | None, classes: Sequence[str] | None) -> tuple[list[Example], Sequence[str]]:
        log(f"reading {source}")
        corpus = load_labeled(source, *columns(source), split, classes)
        if corpus.dropped:
            log(f"{source}: dropped {corpus.dropped:,} rows without a label")
        return list(map(make, corpus.texts, corpus.labels)), corpus.classes

    examples, classes = read(options.data, options.split, None)
    if options.test or options.test_split or options.data.startswith(SCHEME):
        test = options.test or options.data
        split = options.test_split or ("test" if test.startswith(SCHEME) else None)
        return Data(examples, read(test, split, classes)[0], classes)
    if len(examples) < HELD_OUT:
        raise UserError(f"{options.data} has {len(examples)} rows with a label, too few to hold some out: give --test")
    train = [example for number, example in enumerate(examples, start=1) if number % HELD_OUT]
    return Data(train, examples[HELD_OUT - 1 :: HELD_OUT], classes)


def load_labeled(
    source: str,
    text_columns: Sequence[str],
    label_column: str,
    split: str | None = None,
    classes: Sequence[str] | None = None,
) -> LabeledCorpus:
    """Read labeled text.

    A row without a label (-1, "-" or nothing) is dropped, and counted. A text that is missing is empty.

    Args:
        source: `hub:NAME` or `hub:NAME:CONFIG`, or a file (csv, tsv, json, jsonl or parquet; .gz too).
        text_columns: one column, or two, such as premise and hypothesis; `outer.inner` if nested.
        label_column: column of the labels: text, integers, truth values, or a `ClassLabel` of `datasets`.
        split: a split, or a slice of one such as `train[:1000]`; None for train, which is all of a file.
        classes: the classes, if they are known, as from the training split; None for the names of the `ClassLabel`,
            else the sorted values of the column.

    Raises:
        UserError: for a file, split or column that is missing, a file of an unknown kind, a column that is not text,
            no row with a label, fewer than two classes or too many, a label that is not one of `classes`, and a hub
            that cannot be reached.
    """
    path, builder = _open(source, (*text_columns, label_column))
    table = read_split(builder, split or "train", path, "the split")
    for column in text_columns:
        if getattr(_feature(table, column, path), "dtype", None) not in ("string", "large_string"):
            raise UserError(f"column {column!r} of {path} does not hold text: name another of {_columns(table)}")
        check_utf8(table.data.column(column), column, path)
    names = _label_names(table, label_column, path)
    rows = [row for row, name in enumerate(names) if name is not None]
    if not rows:
        raise UserError(f"{path} holds no rows with a label in column {label_column!r}: look at it, or name another")
    labels = [name for name in names if name is not None]
    classes = list(classes or _classes(table, label_column, labels, path))
    columns = [table[column][:] for column in text_columns]
    texts = [tuple(column[row] or "" for column in columns) for row in rows]
    return LabeledCorpus(texts, _indices(labels, classes, label_column, path), classes, len(names) - len(rows))


def _open(source: str, columns: Sequence[str]) -> tuple[str, datasets.DatasetBuilder]:
    """Return the data set's name for messages, and its builder."""
    if source.startswith(SCHEME):
        path, _, name = source.removeprefix(SCHEME).partition(":")
        if not path:
            raise UserError(f"{source!r} names no data set of the hub: write hub:NAME or hub:NAME:CONFIG")
        return path, prepared_builder(
            HubConfig(path=path, name=name or None),
            columns,
            check="its name and configuration",
            instead=INSTEAD_OF_HUB,
        )
    file = Path(source).expanduser()
    suffix = Path(file.name.removesuffix(".gz")).suffix
    if not file.is_file():
        raise UserError(f"no such file: {file} (looked for in {Path.cwd()}); for the hub write hub:NAME")
    if suffix not in FORMATS:
        raise UserError(f"cannot tell what {file} holds: its name must end in one of {', '.join(FORMATS)}")
    if file.stat().st_size == 0:
        raise UserError(f"{file} is empty: give a file with columns")
    kind, options = FORMATS[suffix]
    config = HubConfig(path=kind, data_files=glob.escape(str(file.resolve())))
    return source, prepared_builder(config, columns, check=str(file), instead=INSTEAD_OF_HUB, **options)


def _feature(table: datasets.Dataset, column: str, path: str) -> Any:
    if column not in table.column_names:
        hint = nearest(column, table.column_names)
        raise UserError(f"{path} has no column {column!r}: name one of {_columns(table)}{hint}")
    return table.features[column]


def _columns(table: datasets.Dataset) -> str:
    return ", ".join(table.column_names)


def _label_names(table: datasets.Dataset, column: str, path: str) -> list[str | None]:
    """Return the name of each row's class, None if it has no label."""
    feature, values = _feature(table, column, path), table[column][:]
    if isinstance(feature, datasets.ClassLabel):
        return [None if value is None or value < 0 else feature.int2str(value) for value in values]
    if any(isinstance(value, list | dict) for value in values):
        raise UserError(f"column {column!r} of {path} does not hold labels: name another of {_columns(table)}")
    names = [None if value is None else _label_name(value) for value in values]
    return [None if name in NO_LABEL else name for name in names]


def _label_name(value: Any) -> str:
    """Return a label as text; a whole number, which is a float in a column with empty cells, without decimals."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def _classes(table: datasets.Dataset, column: str, names: Sequence[str], path: str) -> list[str]:
    """Return the names of the `ClassLabel`, or those that occur, sorted: numbers by value."""
    feature = table.features[column]
    occurring = set(names)
    if isinstance(feature, datasets.ClassLabel):
        return list(feature.names)
    if not 2 <= len(occurring) <= MAX_CLASSES:
        count = f"one class only, {names[0]!r}" if len(occurring) == 1 else f"{len(occurring):,} different labels"
        raise UserError(f"column {column!r} of {path} holds {count}: name another of {_columns(table)}")
    is_number = all(name.removeprefix("-").isdecimal() for name in occurring)
    return sorted(occurring, key=int) if is_number else sorted(occurring)


def _indices(names: Sequence[str], classes: Sequence[str], column: str, path: str) -> list[int]:
    index_of = {name: index for index, name in enumerate(classes)}
    for name in names:
        if name not in index_of:
            raise UserError(
                f"column {column!r} of {path} holds the label {name!r}, which the training data does not have "
                f"({', '.join(classes[:20])}): relabel or remove these rows{nearest(name, classes)}"
            )
    return [index_of[name] for name in names]
