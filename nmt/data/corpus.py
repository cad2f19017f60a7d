"""A corpus to train on or to score: opened by its kind, loaded by split, and cleaned by three rules."""

from dataclasses import dataclass

import datasets
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nmt.config.schema import CleaningConfig, DataConfig
from nmt.data.grammar.corpus import GrammarCorpus
from nmt.data.hub import HubCorpus
from nmt.data.tables import SIDES, SPLITS, Corpus, ProgressLog
from nmt.data.text import TextCorpus
from nmt.errors import UserError, unknown
from nmt.text.words import SPACELESS

CORPORA: dict[str, type[Corpus]] = {"grammar": GrammarCorpus, "text": TextCorpus, "hub": HubCorpus}
CLEANED_AT_ONCE = 20_000  # pairs
RATIO_GRACE = 5  # words by which the sides may always differ


def open_corpus(config: DataConfig) -> Corpus:
    """Return the corpus that `data.kind` names, or raise `UserError`; nothing is read yet."""
    if config.kind not in CORPORA:
        raise unknown("data.kind", config.kind, CORPORA)
    return CORPORA[config.kind](config)


def load_split(config: DataConfig, split: str) -> datasets.Dataset:
    """Return one of `SPLITS` (see `Corpus.load`); test_long is the grammar's only. Raises UserError for a split that is
    not configured or does not exist, an empty corpus, keys of another kind of corpus, and what the kind cannot read.
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    corpus = open_corpus(config)
    for kind, other in CORPORA.items():
        for key in other.split_keys:
            if key not in corpus.split_keys and getattr(corpus.split_config(split), key):
                # `data=...` was probably forgotten, and the run would train on the wrong text.
                raise UserError(
                    f"data.{split}.{key} is set, but data={config.kind} does not use it: add data={kind}, "
                    "or remove the key"
                )
    if split == "test_long" and not corpus.has_split(split):
        raise UserError(f"data={config.kind} has no split of long sentences: only data=grammar has test_long")
    with corpus.progress:
        table = corpus.load(split)
    if len(table) == 0:
        raise UserError(f"the {split} split is empty: look at data.{config.kind}")
    return table


@dataclass(frozen=True, kw_only=True)
class CleaningReport:
    """Numbers of pairs: in all, and dropped by each rule; a pair counts under the first rule that it breaks."""

    total: int
    empty: int
    too_long: int
    uneven: int
    config: CleaningConfig

    @property
    def kept(self) -> int:
        return self.total - self.empty - self.too_long - self.uneven

    def __str__(self) -> str:
        return (
            f"kept {self.kept:,} of {self.total:,} pairs; dropped {self.empty:,} with an empty side, "
            f"{self.too_long:,} longer than {self.config.max_length} words, "
            f"{self.uneven:,} with a length ratio above {self.config.max_ratio:g}"
        )


def clean(corpus: datasets.Dataset, config: CleaningConfig) -> tuple[datasets.Dataset, CleaningReport]:
    """Drop the pairs that break a rule; the rest keep their order and columns. Raises UserError if none is left.

    With `shorter` and `longer` the numbers of words (separated by white space) of a pair's sides, it is dropped when

        shorter = 0                                  an empty side
        longer > max_length                          too long
        longer > max_ratio * shorter + 5             uneven

    A side is also too long if it has more than `max_length` characters of scripts without spaces. A pair is uneven only
    if that holds with these characters counted as words, too: a sentence of 30 English words and its Chinese
    translation, which has no spaces, are not uneven.
    """
    text, broken = corpus.select_columns(list(SIDES)).with_format("arrow"), []
    with ProgressLog("cleaning", len(corpus)) as progress:
        for table in text.iter(CLEANED_AT_ONCE):
            broken.append(_broken_rules(table, config))
            progress.add(len(table))
    rules = np.concatenate(broken) if broken else np.zeros(0, np.int8)
    _, empty, too_long, uneven = np.bincount(rules, minlength=4).tolist()
    report = CleaningReport(total=len(corpus), empty=empty, too_long=too_long, uneven=uneven, config=config)
    if report.kept == 0:
        raise UserError(f"cleaning leaves nothing of the corpus: {report}; look at the files, or relax data.cleaning")
    if report.kept == report.total:
        return corpus, report
    return corpus.select(np.flatnonzero(rules == 0)), report


def _broken_rules(table: pa.Table, config: CleaningConfig) -> npt.NDArray[np.int8]:
    """Return for each pair the first rule that it breaks: 1 empty, 2 too long, 3 uneven; 0 for none."""
    columns = [table.column(side) for side in SIDES]
    words = np.stack([_word_counts(column) for column in columns])
    characters = np.stack([pc.count_substring_regex(column, SPACELESS.pattern).to_numpy() for column in columns])
    is_long = np.maximum(words, characters).max(axis=0) > config.max_length
    uneven, finely_uneven = (
        counts.max(axis=0) > config.max_ratio * counts.min(axis=0) + RATIO_GRACE
        for counts in (words, words + characters)
    )
    return np.select([words.min(axis=0) == 0, is_long, uneven & finely_uneven], [1, 2, 3]).astype(np.int8)


def _word_counts(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    trimmed = pc.utf8_trim_whitespace(column)
    words = pc.list_value_length(pc.utf8_split_whitespace(trimmed))
    # Splitting an empty line gives one empty word.
    return np.where(pc.equal(trimmed, "").to_numpy(), 0, words.to_numpy()).astype(np.int64)
