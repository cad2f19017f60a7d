"""Leaving out pairs that are no use to learn from, by three stated rules."""

from dataclasses import dataclass

import datasets
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from nmt.config.schema import CleaningConfig
from nmt.errors import UserError

RATIO_GRACE = 5


@dataclass(frozen=True, kw_only=True)
class CleaningReport:
    """How many pairs there were and how many each rule dropped; a pair counts under the first rule that it breaks."""

    total: int
    empty: int
    too_long: int
    uneven: int
    config: CleaningConfig

    @property
    def kept(self) -> int:
        """Pairs left."""
        return self.total - self.empty - self.too_long - self.uneven

    def __str__(self) -> str:
        """One line: pairs kept, and dropped by rule."""
        return (
            f"kept {self.kept:,} of {self.total:,} pairs; dropped {self.empty:,} with an empty side, "
            f"{self.too_long:,} longer than {self.config.max_length} words, "
            f"{self.uneven:,} with a length ratio above {self.config.max_ratio:g}"
        )


def clean(corpus: datasets.Dataset, config: CleaningConfig) -> tuple[datasets.Dataset, CleaningReport]:
    """Drop the pairs that break a rule; the rest keep their order and columns.

    With `shorter` and `longer` the numbers of words (parted by white space) of a pair's sides, it is dropped when

        shorter = 0                                  an empty side
        longer > max_length                          too long
        longer > max_ratio * shorter + 5             uneven

    Raises:
        UserError: when nothing is left.
    """
    table = corpus.with_format("arrow")[:]
    counts = [_word_counts(table.column(side)) for side in ("source", "target")]
    shorter, longer = np.minimum(*counts), np.maximum(*counts)
    empty = shorter == 0
    too_long = (longer > config.max_length) & ~empty
    uneven = (longer > config.max_ratio * shorter + RATIO_GRACE) & ~empty & ~too_long
    dropped = {"empty": int(empty.sum()), "too_long": int(too_long.sum()), "uneven": int(uneven.sum())}
    report = CleaningReport(total=len(corpus), **dropped, config=config)
    if report.kept == 0:
        raise UserError(f"cleaning leaves nothing of the corpus: {report}; look at the files, or relax data.cleaning")
    if report.kept == report.total:
        return corpus, report
    return corpus.select(np.flatnonzero(~(empty | too_long | uneven))), report


def _word_counts(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    trimmed = pc.utf8_trim_whitespace(column)
    words = pc.list_value_length(pc.utf8_split_whitespace(trimmed))
    # Nothing, split, is one empty word.
    counts: npt.NDArray[np.int64] = np.where(pc.equal(trimmed, "").to_numpy(), 0, words.to_numpy()).astype(np.int64)
    return counts
