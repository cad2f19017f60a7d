"""Corpora of the Hugging Face hub, and whatever else `datasets` reads (json, csv, parquet, ...)."""

import re
from pathlib import Path

import datasets
import huggingface_hub
import pyarrow as pa
import pyarrow.compute as pc

from nmt.config.schema import DataConfig, HubConfig
from nmt.data.arrow import progress_on_terminals_only
from nmt.errors import UserError, nearest

REACH_SECONDS = 10
BUILDERS = ("csv", "json", "parquet")  # of `datasets`, for files with columns


def load(config: DataConfig, split: str) -> datasets.Dataset:
    """Return a split with the columns source and target, memory-mapped from the cache of `datasets`.

    The sides are two columns, or two languages of a `translation` column (see `HubConfig`). An empty cell becomes
    an empty sentence, and a newline within a sentence a space.

    Raises:
        UserError: when the hub cannot be reached, or the data set, split or column does not exist.
    """
    name = getattr(config, split).name or split
    with progress_on_terminals_only():
        builder = _open(config.hub)
        splits = _splits(builder)
        if _base(name) not in splits:
            raise UserError(
                f"data set {config.hub.path} has no split {_base(name)!r}: set data.{split}.name to one of "
                f"{', '.join(splits)}{nearest(_base(name), splits)}"
            )
        try:
            corpus = builder.as_dataset(split=name).flatten()
        except (ValueError, AssertionError) as error:
            raise UserError(
                f"data.{split}.name={name} cannot be read as a slice of a split: {_one_line(error)}"
            ) from None
    return _two_columns(corpus, config)


def has(config: DataConfig, split: str) -> bool:
    """Whether the data set has this split, under its own name or that of `data.<split>.name`.

    Raises:
        UserError: when the hub cannot be reached or the data set does not exist.
    """
    if getattr(config, split).name:
        return True
    with progress_on_terminals_only():
        return split in _splits(_open(config.hub))


def _open(config: HubConfig) -> datasets.DatasetBuilder:
    if not config.path:
        raise UserError(
            "data=hub needs a data set: set data.hub.path=OWNER/NAME, or json, csv, parquet with data.hub.data_files"
        )
    if config.path == "text":
        raise UserError(
            "data.hub.path=text has one column, a corpus has two: use data=text with data.train.source=F ..."
        )
    if config.path in BUILDERS and not config.data_files:
        raise UserError(f"data.hub.path={config.path} needs files: set 'data.hub.data_files={{train:F,validation:F}}'")
    if _is_remote(config):
        _check_reachable(config)
    try:
        builder = datasets.load_dataset_builder(
            config.path, name=config.name, revision=config.revision, data_files=config.data_files
        )
        builder.download_and_prepare()
    # From here come errors of `datasets`, of the hub's client, of its HTTP library, and of every file format.
    except Exception as error:
        if huggingface_hub.constants.HF_HUB_OFFLINE and isinstance(error, ConnectionError):
            raise UserError(
                f"data set {config.path} is not in the cache {datasets.config.HF_DATASETS_CACHE}, and "
                "HF_HUB_OFFLINE keeps from fetching it: unset HF_HUB_OFFLINE, or use data=text with files of your own"
            ) from None
        raise UserError(f"cannot load data set {config.path}: {_one_line(error)}; check data.hub") from None
    return builder


def _is_remote(config: HubConfig) -> bool:
    path, files = str(config.path), str(config.data_files or "")
    is_local_builder = bool(files) and "/" not in path
    return "hf://" in files or not (is_local_builder or Path(path).exists())


def _check_reachable(config: HubConfig) -> None:
    """One request, because the hub's client tries again for half a minute before it gives up on each."""
    if huggingface_hub.constants.HF_HUB_OFFLINE:
        if config.data_files:
            raise UserError(
                f"data.hub.data_files of {config.path} are listed by the hub, even if they are in the cache, and "
                "HF_HUB_OFFLINE keeps from asking: unset HF_HUB_OFFLINE, or use data=text with files of your own"
            )
        return
    endpoint = huggingface_hub.constants.ENDPOINT
    try:
        huggingface_hub.get_session().head(endpoint, timeout=REACH_SECONDS)
    # Which library makes the request, and so what it raises, changes with the client's version.
    except Exception as error:
        cached = "" if config.data_files else "set HF_HUB_OFFLINE=1 if the data set is in the cache already, "
        raise UserError(
            f"cannot reach {endpoint} for data set {config.path} ({_one_line(error)}): check the network or proxy, "
            f"{cached}or use data=text with files of your own, or data=grammar"
        ) from None


def _splits(builder: datasets.DatasetBuilder) -> list[str]:
    return [str(name) for name in builder.info.splits or ()]


def _base(name: str) -> str:
    """The split of `train[:1000]`."""
    return re.split(r"[\[+]", name)[0]


def _two_columns(corpus: datasets.Dataset, config: DataConfig) -> datasets.Dataset:
    columns = [_column(corpus, config, "source"), _column(corpus, config, "target")]
    corpus = corpus.select_columns(list(dict.fromkeys(columns)))
    if len(set(columns)) < 2:
        raise UserError(
            f"source and target are both column {columns[0]!r}: set data.hub.source_column and data.hub.target_column"
        )
    corpus = corpus.rename_columns(dict(zip(columns, ("source", "target"), strict=True)))
    if any(_needs_mending(corpus.data.column(side)) for side in ("source", "target")):
        with progress_on_terminals_only():
            corpus = corpus.with_format("arrow").map(_mended, batched=True, desc="mending lines").with_format(None)
    return corpus


def _column(corpus: datasets.Dataset, config: DataConfig, side: str) -> str:
    language = getattr(config, f"{side}_language")
    asked: str = getattr(config.hub, f"{side}_column") or language
    for name in (asked, f"{config.hub.translation_column}.{asked}"):
        if name not in corpus.column_names:
            continue
        if getattr(corpus.features[name], "dtype", None) not in ("string", "large_string"):
            raise UserError(
                f"column {name!r} of data set {config.hub.path} does not hold text: set data.hub.{side}_column"
            )
        return name
    names = corpus.column_names
    raise UserError(
        f"data set {config.hub.path} has no column {asked!r}: set data.{side}_language or data.hub.{side}_column "
        f"to one of {', '.join(names)}{nearest(asked, names)}"
    )


def _needs_mending(column: pa.ChunkedArray) -> bool:
    return bool(column.null_count or pc.any(pc.match_substring(column, "\n")).as_py())


def _mended(table: pa.Table) -> pa.Table:
    columns = [pc.replace_substring(pc.fill_null(column, ""), "\n", " ") for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text.rstrip(".")[:400]
