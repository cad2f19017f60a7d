"""Gold links between words, as attention between the pieces that the words are segmented into."""

import logging
from collections.abc import Sequence
from typing import final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from nmt.alignment.pharaoh import parse_pharaoh
from nmt.data.batch import Attention, IntArray
from nmt.data.encoded import EncodedCorpus
from nmt.data.text import COLUMNS
from nmt.errors import UserError
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.text.vocabulary import WORD_MARK, Vocabulary

PROBED = 1_000  # pairs looked at before training, to tell how many cannot be taught

logger = logging.getLogger(__name__)


@final
class Guide:
    """The attention that gold links ask for, made for the segmentation in use: sampling changes it from epoch to epoch.

    Links count what stands between spaces, as for the alignment error rate: words, made of pieces that are merged at
    the word mark, or, in text that is segmented already, the pieces themselves. A pair in which spaces and pieces
    disagree (a normalization makes two words of one, a piece holds several) is not taught.

    Args:
        encoded: a corpus with the column alignment, in Pharaoh notation.
        tokenizers: the models that its ids are of.

    Raises:
        UserError: when no pair has links, or none of those that were looked at can be taught.
    """

    def __init__(self, encoded: EncodedCorpus, tokenizers: Tokenizers) -> None:
        assert "alignment" in encoded.corpus.column_names, "there is no gold to guide by"
        self._text = encoded.corpus.select_columns(list(COLUMNS))
        self._source_words = Words(tokenizers.source)
        self._target_words = Words(tokenizers.target)
        self._probe(encoded)

    def __call__(self, rows: IntArray, sources: Sequence[IntArray], targets: Sequence[IntArray]) -> list[Attention]:
        """Return what to teach of each pair.

        Args:
            rows: indices of the pairs in the corpus.
            sources: the ids of their sources, as they are segmented now.
            targets: the ids of their targets.
        """
        found = []
        text = self._text[rows.tolist()]
        lines = zip(*(text[column] for column in COLUMNS), strict=True)
        for (source, target, links), source_ids, target_ids in zip(lines, sources, targets, strict=True):
            source_word, target_word = self._source_words(source_ids), self._target_words(target_ids)
            if not (agrees(source, source_word) and agrees(target, target_word)):
                links = ""
            found.append(taught_attention(links, source_word, target_word))
        return found

    def _probe(self, encoded: EncodedCorpus) -> None:
        """Tell how many of the pairs with links cannot be taught, going by some that are spread over the corpus."""
        column = self._text.with_format("arrow")[:].column("alignment")
        linked = np.flatnonzero(pc.not_equal(pc.utf8_trim_whitespace(column), "").to_numpy())
        if len(linked) == 0:
            raise UserError(
                "trainer.guided_alignment has nothing to teach: the gold alignments of the training text hold no "
                "links; look at data.train.alignment, or set trainer.guided_alignment.weight=0"
            )
        rows = linked[:: -(-len(linked) // PROBED)]
        numbers = rows.tolist()
        matrices = self(rows, [encoded.source[row] for row in numbers], [encoded.target[row] for row in numbers])
        lost = sum(not matrix.any() for matrix in matrices) / len(matrices)
        words = "the subword models part their lines into other words than spaces do"
        if lost == 1.0:
            raise UserError(f"trainer.guided_alignment cannot teach any of {len(rows)} training pairs: {words}")
        if lost > 0.0:
            logger.warning("attention is not guided in about %.2g%% of the linked pairs: %s", 100 * lost, words)


@final
class Words:
    """Finds the part between spaces that each piece belongs to, of any segmentation and without asking piece by piece.

    As the tokenizers' `parts`, but that subwords are always merged at the word mark, whatever the line's spaces.
    """

    def __init__(self, tokenizer: Tokenizer | Vocabulary) -> None:
        names = tokenizer.pieces(range(len(tokenizer)))
        are_parts = isinstance(tokenizer, Vocabulary)
        self._is_start = np.array([are_parts or name.startswith(WORD_MARK) for name in names])
        self._is_bare = np.array([not are_parts and name == WORD_MARK for name in names])

    def __call__(self, ids: IntArray) -> npt.NDArray[np.int64]:
        """Return the index of each piece's word; there must be no control pieces among them."""
        opens = self._is_start[ids]
        opens[1:] &= ~self._is_bare[ids[:-1]]  # a mark that stands alone belongs to the word that comes after it
        opens[:1] = True
        return np.cumsum(opens) - 1


def agrees(line: str, word_of_piece: npt.NDArray[np.int64]) -> bool:
    """Tell whether pieces make up as many words as the spaces of their line do."""
    return len(line.split()) == (int(word_of_piece[-1]) + 1 if len(word_of_piece) else 0)


def taught_attention(links: str, source_word: npt.NDArray[np.int64], target_word: npt.NDArray[np.int64]) -> Attention:
    """Spread the links of each target word evenly over the pieces of the source words it is linked to.

        p(j, i) = 1 / n_j  if the word of target piece j is linked to that of source piece i, else 0,

    with n_j the pieces of all source words that it is linked to. Possible links count for a word without sure ones.

    Args:
        links: Pharaoh notation, within the pair's words.
        source_word: the word of each source piece.
        target_word: the word of each target piece.

    Returns:
        p: rows sum to 1, and rows of pieces whose word has no link are 0.
    """
    gold = parse_pharaoh(links)
    has_sure = {j for _, j in gold.sure}
    linked = np.zeros((target_word.max(initial=-1) + 1, source_word.max(initial=-1) + 1), np.float32)
    for i, j in gold.possible:
        if (i, j) in gold.sure or j not in has_sure:
            linked[j, i] = 1.0
    pieces = linked[np.ix_(target_word, source_word)]
    spread: Attention = pieces / np.maximum(pieces.sum(axis=1, keepdims=True), 1.0)
    return spread
