"""Attention targets for guided alignment: gold links between words, as attention between their pieces."""

import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

import numpy as np
import numpy.typing as npt
from jaxtyping import Float32

from nmt.alignment.pharaoh import parse_pharaoh
from nmt.errors import UserError
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.text.vocabulary import WORD_MARK, Vocabulary

if TYPE_CHECKING:  # translation, which needs no tables, starts a third sooner without it
    import datasets

COLUMNS = ("source", "target", "alignment")
ROWS_AT_ONCE = 10_000
SAMPLE_SIZE = 1_000  # sentence pairs checked before training

IntArray = npt.NDArray[np.integer]
Attention = Float32[np.ndarray, "_ _"]  # of a sentence pair: target pieces by source pieces

logger = logging.getLogger(__name__)


@final
class AlignmentTargets:
    """Target attention matrices made from gold links, for the current segmentation: sampling changes it every epoch.

    Links count the parts between spaces, as for the alignment error rate: words, made of pieces that are merged at
    the word mark, or, in pre-segmented text, the pieces themselves. A pair in which spaces and pieces
    disagree (normalization splits a word, a piece spans several) has no target.

    Raises:
        UserError: no pair has links, or none of a sample of those that have can be given a target.
    """

    def __init__(self, corpus: "datasets.Dataset", tokenizers: Tokenizers) -> None:
        assert "alignment" in corpus.column_names, "guided alignment needs gold"
        self._text = corpus.select_columns(list(COLUMNS))
        self._source_words = WordIndex(tokenizers.source)
        self._target_words = WordIndex(tokenizers.target)
        self._check_sample(tokenizers)

    def __call__(self, rows: IntArray, sources: Sequence[IntArray], targets: Sequence[IntArray]) -> list[Attention]:
        """Return the target of each pair, 0 for a pair that has none.

        `rows` are indices of pairs in the corpus, `sources` and `targets` their ids, as they are segmented now.
        """
        attention = []
        text = self._text[rows.tolist()]
        lines = zip(*(text[column] for column in COLUMNS), strict=True)
        for (source, target, links), source_ids, target_ids in zip(lines, sources, targets, strict=True):
            source_word, target_word = self._source_words(source_ids), self._target_words(target_ids)
            if not (same_word_count(source, source_word) and same_word_count(target, target_word)):
                links = ""
            attention.append(target_attention(links, source_word, target_word))
        return attention

    def _check_sample(self, tokenizers: Tokenizers) -> None:
        """Warn of the fraction of linked pairs that have no target, estimated on pairs spread over the corpus."""
        import pyarrow.compute as pc  # late: 0.15 s, which translation need not wait for

        parts = self._text.select_columns(["alignment"]).with_format("arrow").iter(ROWS_AT_ONCE)
        is_linked = [pc.not_equal(pc.utf8_trim_whitespace(part.column("alignment")), "").to_numpy() for part in parts]
        linked = np.flatnonzero(np.concatenate(is_linked))
        if len(linked) == 0:
            raise UserError(
                "trainer.guided_alignment has nothing to teach: the gold alignments of the training text hold no "
                "links; look at data.train.alignment, or set trainer.guided_alignment.weight=0"
            )
        rows = linked[:: math.ceil(len(linked) / SAMPLE_SIZE)]
        text = self._text[rows.tolist()]
        sides = [tokenizers.source.encode(text["source"]), tokenizers.target.encode(text["target"])]
        matrices = self(rows, *([np.asarray(ids, np.int32) for ids in side] for side in sides))
        lost = sum(not matrix.any() for matrix in matrices) / len(matrices)
        words = "the subword models split their lines into different words than the spaces do"
        if lost == 1.0:
            raise UserError(f"trainer.guided_alignment cannot teach any of {len(rows)} training pairs: {words}")
        if lost > 0.0:
            logger.warning("attention is not guided in about %.2g%% of the linked pairs: %s", 100 * lost, words)


@final
class WordIndex:
    """Maps the pieces of a sentence to the indices of their words, for any segmentation, by looking ids up in arrays.

    As `parts` of the tokenizer, except that subwords are always merged at the word mark, whatever the line's spaces.
    """

    def __init__(self, tokenizer: Tokenizer | Vocabulary) -> None:
        pieces = tokenizer.pieces(range(len(tokenizer)))
        is_segmented = isinstance(tokenizer, Vocabulary)
        self._starts_word = np.array([is_segmented or piece.startswith(WORD_MARK) for piece in pieces])
        self._is_mark = np.array([not is_segmented and piece == WORD_MARK for piece in pieces])

    def __call__(self, ids: IntArray) -> npt.NDArray[np.int64]:
        """Return the index of each piece's word; control pieces are not allowed among the ids."""
        starts = self._starts_word[ids]
        starts[1:] &= ~self._is_mark[ids[:-1]]  # a lone mark belongs to the word after it
        starts[:1] = True
        return np.cumsum(starts) - 1


def same_word_count(line: str, word_of_piece: npt.NDArray[np.int64]) -> bool:
    """Return whether the pieces make as many words as the spaces of their line do."""
    return len(line.split()) == (int(word_of_piece[-1]) + 1 if len(word_of_piece) else 0)


def target_attention(links: str, source_word: npt.NDArray[np.int64], target_word: npt.NDArray[np.int64]) -> Attention:
    """Spread the links of each target word evenly over the pieces of the source words it is linked to.

        p(j, i) = 1 / n_j  if the word of target piece j is linked to that of source piece i, else 0,

    with n_j the number of pieces of all source words it is linked to: rows of p [target pieces, source pieces] sum to
    1, or are 0 where the piece's word has no link. Possible links count for a word without sure ones (targets from
    given links: Chen et al., 2016).

    Args:
        links: Pharaoh notation, within the pair's words.
        source_word: the index of the word of each source piece.
        target_word: the index of the word of each target piece.
    """
    gold = parse_pharaoh(links)
    has_sure = {j for _, j in gold.sure}
    linked = np.zeros((target_word.max(initial=-1) + 1, source_word.max(initial=-1) + 1), np.float32)
    for i, j in gold.possible:
        if (i, j) in gold.sure or j not in has_sure:
            linked[j, i] = 1.0
    pieces = linked[np.ix_(target_word, source_word)]
    return pieces / np.maximum(pieces.sum(axis=1, keepdims=True), 1.0)
