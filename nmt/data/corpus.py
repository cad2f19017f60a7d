"""The parallel corpus: wherever it comes from, an Arrow table of source, target and, where there is gold, alignment."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import datasets
import pyarrow as pa

from nmt.config.schema import DataConfig, SplitConfig
from nmt.data import arrow, hub, text
from nmt.data.grammar import corpus as grammar
from nmt.errors import UserError, unknown

SPLITS = ("train", "validation", "test", "test_long")
USED_KEYS = {"grammar": (), "text": ("source", "target", "alignment"), "hub": ("name",)}


def load_split(config: DataConfig, split: str) -> datasets.Dataset:
    """Return a split as a memory-mapped table with the text columns source, target and, where there is gold, alignment.

    Alignments are lines in Pharaoh format. Text files and the grammar's pairs are kept under `config.cache_dir`, named
    by their content (the grammar's by what determines it); corpora of the hub stay in the cache of `datasets`.

    Args:
        config: where the corpus comes from.
        split: train, validation, test, or test_long (which only the grammar has).

    Raises:
        UserError: for a split that is not configured or does not exist, an empty corpus, keys that belong to another
            kind of corpus, and everything that is wrong with the files (`nmt.data.text`) or the hub (`nmt.data.hub`).
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    _check_keys(config, split)
    if split == "test_long" and config.kind != "grammar":
        raise UserError(f"data={config.kind} has no split of long sentences: only data=grammar has test_long")
    corpus = {"grammar": _grammar_split, "text": _text_split, "hub": hub.load}[config.kind](config, split)
    if len(corpus) == 0:
        raise UserError(f"the {split} split is empty: {_origin(config, split)}")
    return corpus


def has_split(config: DataConfig, split: str) -> bool:
    """Whether a split is configured, so that `load_split` has something to load (or a mistake to report).

    Raises:
        UserError: when a corpus of the hub has to be asked and cannot be reached.
    """
    if config.kind == "grammar":
        return split in SPLITS
    if split == "test_long":
        return False
    if config.kind == "hub":
        return hub.has(config, split)
    files = _split_config(config, split)
    return bool(files.source or files.target)


def missing_split(config: DataConfig, split: str) -> UserError:
    """Return the error for a split that a run needs and `has_split` has not."""
    if config.kind == "hub":
        return UserError(
            f"data set {config.hub.path} has no split {split!r}: set data.{split}.name to another, or to a slice of "
            f"one, such as 'data.{split}.name=\"train[:1000]\"'"
        )
    return UserError(f"no {split} text: set data.{split}.source and data.{split}.target")


def _split_config(config: DataConfig, split: str) -> SplitConfig:
    files: SplitConfig = getattr(config, split)
    return files


def _check_keys(config: DataConfig, split: str) -> None:
    """A key of another kind of corpus is a forgotten `data=...`; ignoring it would train on the wrong text."""
    if split == "test_long":
        return
    kind_of = {key: kind for kind, keys in USED_KEYS.items() for key in keys}
    for key, kind in kind_of.items():
        if getattr(_split_config(config, split), key) and kind != config.kind:
            raise UserError(
                f"data.{split}.{key} is set, but data={config.kind} does not use it: add data={kind}, or remove the key"
            )


def _text_split(config: DataConfig, split: str) -> datasets.Dataset:
    files = text.open_split(_split_config(config, split), split)
    digest = hashlib.sha256()
    for column, parts in files.items():
        for file in parts:
            digest.update(f"{column} {file.path.suffix} {len(file.content)} ".encode())
            digest.update(file.content)
    return _stored(config, digest.hexdigest(), lambda: pa.table(text.read_split(files)))


def _grammar_split(config: DataConfig, split: str) -> datasets.Dataset:
    # Named by what the pairs follow from, settings and program, because to generate them takes seconds.
    digest = hashlib.sha256(f"{config.grammar} {split}".encode())
    for program in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(program.read_bytes())

    def build() -> pa.Table:
        pairs = grammar.generate(config.grammar, split)
        return pa.table({name: [getattr(pair, name) for pair in pairs] for name in text.COLUMNS})

    return _stored(config, digest.hexdigest(), build)


def _stored(config: DataConfig, digest: str, build: Callable[[], pa.Table]) -> datasets.Dataset:
    path = Path(config.cache_dir) / f"corpus-{digest[:24]}.arrow"
    return datasets.Dataset.from_file(str(arrow.stored_table(path, lambda _: build())))


def _origin(config: DataConfig, split: str) -> str:
    if config.kind != "text":
        return f"look at data.{config.kind}"
    files = _split_config(config, split)
    return f"{files.source} and {files.target} hold no lines"
