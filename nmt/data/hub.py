"""Corpora of the Hugging Face hub (`data=hub`), and whatever else `datasets` reads: json, csv, parquet, ..."""

import contextlib
import errno
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pyarrow as pa
import pyarrow.compute as pc

from nmt.config.schema import DataConfig, HubConfig
from nmt.data.tables import SIDES, Corpus, progress_on_terminals_only
from nmt.errors import UserError, nearest, one_line

TIMEOUT = 10  # seconds
BUILDERS = ("csv", "json", "parquet")  # of `datasets`, for files with columns
INSTEAD = "data=text with files of your own, or data=grammar"


class HubCorpus(Corpus):
    """A data set that `datasets.load_dataset` finds; it has no gold alignments."""

    split_keys = ("name",)

    @progress_on_terminals_only(datasets)
    def load(self, split: str) -> datasets.Dataset:
        """Return a split, memory-mapped from the cache of `datasets`; raise UserError if the hub cannot be reached, or
        the data set, split or column does not exist.

        The sides are two columns, or two languages of a `translation` column (see `HubConfig`). An empty cell becomes
        an empty sentence, and a newline within a sentence a space.
        """
        name = self.split_config(split).name or split
        builder = _builder(self.config)
        table = read_split(builder, name, str(self.config.hub.path), f"data.{split}.name")
        with cache_errors(builder.cache_dir):  # that of `datasets` holds what is mended, too
            return _two_columns(table, self.config)

    def has_split(self, split: str) -> bool:
        """Return whether `data.<split>.name` names a split, or the data set has this one; raise UserError if that
        has to be looked up, and the hub cannot be reached or the data set does not exist.
        """
        if self.split_config(split).name:
            return True
        return split != "test_long" and split in (_builder(self.config).info.splits or ())

    def has_gold(self, split: str) -> bool:
        return False

    def missing(self, split: str) -> UserError:
        return UserError(
            f"data set {self.config.hub.path} has no split {split!r}: set data.{split}.name to another, or to a slice "
            f"of one, such as 'data.{split}.name=\"train[:1000]\"'"
        )


@progress_on_terminals_only(datasets)
def read_split(builder: datasets.DatasetBuilder, name: str, path: str, key: str) -> datasets.Dataset:
    """Return a split, or a slice of one such as `train[:1000]`, with nested columns as `outer.inner`; raise UserError
    if there is no such split, the slice is malformed, or the data set's cache is damaged.

    The data set is one that is prepared; `path` and `key` are the names of it and of the option in messages.
    """
    base = re.split(r"[\[+]", name)[0]
    splits = list(map(str, builder.info.splits or ()))
    if base not in splits:
        raise UserError(
            f"data set {path} has no split {base!r}: set {key} to one of {', '.join(splits)}{nearest(base, splits)}"
        )
    if not builder.info.splits[base].num_examples:
        raise UserError(f"data set {path} has no rows in its split {base!r}: look at it, or set {key} to another")
    try:
        with cache_errors(builder.cache_dir):
            return builder.as_dataset(split=name).flatten()
    except UserError:
        raise
    except (ValueError, AssertionError) as error:
        raise UserError(f"{key}={name} cannot be read as a slice of a split: {one_line(error)}") from None


@contextlib.contextmanager
def cache_errors(folder: str | Path) -> Iterator[None]:
    """Turn what is damaged or missing in a folder of `datasets`' cache into a UserError."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):  # as on a full disk
            raise
        raise UserError(f"{folder} is damaged ({one_line(error)}): delete it, and it is made anew") from None


def _builder(data: DataConfig) -> datasets.DatasetBuilder:
    """Find the data set that the configuration names, and download it unless it is in the cache."""
    config = data.hub
    if not config.path:
        hint = "set data.hub.path=OWNER/NAME, or json, csv, parquet with data.hub.data_files"
        raise UserError(f"data=hub needs a data set: {hint}")
    if config.path == "text":
        hint = "use data=text with data.train.source=F ..."
        raise UserError(f"data.hub.path=text has one column, a corpus has two: {hint}")
    if config.path in BUILDERS and not config.data_files:
        raise UserError(f"data.hub.path={config.path} needs files: set 'data.hub.data_files={{train:F,validation:F}}'")
    return prepared_builder(config, [_asked(data, side) for side in SIDES])


@progress_on_terminals_only(datasets)
def prepared_builder(
    config: HubConfig, columns: Sequence[str], *, check: str = "data.hub", instead: str = INSTEAD, **options: Any
) -> datasets.DatasetBuilder:
    """Return the builder of a data set, which is downloaded unless it is in the cache; raise UserError if the hub
    cannot be reached, or the data set does not exist or cannot be read.

    Args:
        config: path, name, revision and files of the data set.
        columns: those of text, whose cells are read from CSV files as they are written.
        check: what a message tells to check.
        instead: what a message offers to use without the hub.
        options: of a local builder, such as the separator of CSV files.
    """
    config = replace(config, data_files=_with_home(config.data_files))
    assert config.path
    files = str(config.data_files or "")
    is_local = (files and "/" not in config.path) or Path(config.path).exists()
    if "hf://" in files or not is_local:
        _check_reachable(config, instead)
    try:
        builder = _found_builder(config, columns, **options)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "Length of header")  # a row of a CSV file has cells without a column
            builder.download_and_prepare()
    except StopIteration:  # of a builder that looks at the first row
        raise UserError(
            f"data set {config.path} has no rows, or no file of that name ([ ] * ? stand for other characters): "
            f"check {check}"
        ) from None
    # Errors of `datasets`, of the hub's client, of its HTTP library, and of every file format.
    except Exception as error:
        if huggingface_hub.constants.HF_HUB_OFFLINE and isinstance(error, ConnectionError):
            raise UserError(
                f"data set {config.path} is not in the cache {datasets.config.HF_DATASETS_CACHE}, and "
                f"HF_HUB_OFFLINE keeps from fetching it: unset HF_HUB_OFFLINE, or use {instead}"
            ) from None
        cause = f" ({one_line(error.__cause__)})" if isinstance(error.__cause__, Exception) else ""
        raise UserError(f"cannot load data set {config.path}: {one_line(error)}{cause}; check {check}") from None
    return builder


def _with_home(files: Any) -> Any:
    """Return paths, or lists and mappings of such, with `~` replaced by the home folder, as in `data.train.source`."""
    if isinstance(files, Mapping):
        return {name: _with_home(each) for name, each in files.items()}
    if isinstance(files, Sequence) and not isinstance(files, str):
        return [_with_home(each) for each in files]
    return str(Path(files).expanduser()) if str(files).startswith("~") else files


def _found_builder(config: HubConfig, columns: Sequence[str], **options: Any) -> datasets.DatasetBuilder:
    """Find a data set; one of CSV files a second time, as only then they are known to be."""
    # `NA` is a word, 007 no number, and the first column is that of the first name.
    texts = dict.fromkeys(columns, str)
    cells = {"converters": texts, "keep_default_na": False, "na_values": [""], "index_col": False}
    place = {"name": config.name, "revision": config.revision, "data_files": config.data_files}
    find = partial(datasets.load_dataset_builder, config.path, **place, **options)
    try:
        builder = find()
    except ValueError:
        if huggingface_hub.constants.HF_HUB_OFFLINE:
            with contextlib.suppress(ValueError):
                return find(**cells)  # the cache has it under another name
        raise
    return find(**cells) if builder.info.builder_name == "csv" else builder


def _check_reachable(config: HubConfig, instead: str) -> None:
    """Raise UserError unless the hub answers one request; its client would retry each of its own for half a minute."""
    if huggingface_hub.constants.HF_HUB_OFFLINE:
        if config.data_files:
            raise UserError(
                f"data.hub.data_files of {config.path} are listed by the hub, even if they are in the cache, and "
                f"HF_HUB_OFFLINE keeps from asking: unset HF_HUB_OFFLINE, or use {instead}"
            )
        return
    endpoint = huggingface_hub.constants.ENDPOINT
    try:
        huggingface_hub.get_session().head(endpoint, timeout=TIMEOUT)
    # Which HTTP library makes the request, and so what it raises, depends on the client's version.
    except Exception as error:
        cached = "" if config.data_files else "set HF_HUB_OFFLINE=1 if the data set is in the cache already, "
        raise UserError(
            f"cannot reach {endpoint} for data set {config.path} ({one_line(error)}): check the network or proxy, "
            f"{cached}or use {instead}"
        ) from None


def _two_columns(table: datasets.Dataset, config: DataConfig) -> datasets.Dataset:
    """Return the table's columns of the two sides, as source and target."""
    columns = [_column(table, config, side) for side in SIDES]
    if columns[0] == columns[1]:
        raise UserError(
            f"source and target are both column {columns[0]!r}: set data.hub.source_column and data.hub.target_column"
        )
    table = table.select_columns(columns).rename_columns(dict(zip(columns, SIDES, strict=True)))
    sides = [table.data.column(side) for side in SIDES]
    for side, column in zip(sides, columns, strict=True):
        check_utf8(side, column, str(config.hub.path))
    if any(side.null_count or pc.any(pc.match_substring(side, "\n")).as_py() for side in sides):
        table = table.with_format("arrow").map(_without_nulls_and_newlines, batched=True, desc="joining lines")
    return table.with_format(None)


def check_utf8(cells: pa.ChunkedArray, column: str, path: str) -> None:
    """Raise UserError for a column of text that is not UTF-8, which no reader of JSON or Parquet files looks at."""
    try:
        cells.validate(full=True)
    except pa.ArrowInvalid:
        raise UserError(
            f"column {column!r} of data set {path} is not UTF-8: convert its files, e.g. with iconv -f LATIN1 -t UTF-8"
        ) from None


def _column(table: datasets.Dataset, config: DataConfig, side: str) -> str:
    """Return the name of the column of one side."""
    asked, names = _asked(config, side), table.column_names
    for name in (asked, f"{config.hub.translation_column}.{asked}"):
        if name not in names:
            continue
        if getattr(table.features[name], "dtype", None) not in ("string", "large_string"):
            raise UserError(
                f"column {name!r} of data set {config.hub.path} does not hold text: set data.hub.{side}_column"
            )
        return name
    raise UserError(
        f"data set {config.hub.path} has no column {asked!r}: set data.{side}_language or data.hub.{side}_column "
        f"to one of {', '.join(names)}{nearest(asked, names)}"
    )


def _asked(config: DataConfig, side: str) -> str:
    """Return the column of one side that is asked for, or the language in a `translation` column."""
    return getattr(config.hub, f"{side}_column") or getattr(config, f"{side}_language")


def _without_nulls_and_newlines(table: pa.Table) -> pa.Table:
    columns = [pc.replace_substring(pc.fill_null(column, ""), "\n", " ") for column in table.columns]
    return pa.table(columns, names=table.column_names)
