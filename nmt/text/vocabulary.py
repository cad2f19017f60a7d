"""Vocabularies: the special ids, files of pieces, and the vocabulary of text that is segmented already."""

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from nmt.errors import UserError

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
WORD_MARK = "\u2581"
CONTINUATION = "@@"

# A smaller share of marked pieces is taken for stray marks among plain words, not for sentencepiece's vocabulary.
MARKED_SHARE = 0.01
MIN_KNOWN_SHARE = 0.8  # of the text, or a warning is given

Model = TypeVar("Model", bound="PieceModel")

logger = logging.getLogger(__name__)


def text_of(words: Iterable[str]) -> str:
    """Join words into a line; empty words, which come from a lone word mark, are skipped."""
    return " ".join(filter(None, words))


class PieceModel(ABC):
    """A numbered vocabulary of pieces and its segmentation, all of it in `model`, the content of its file."""

    suffix: ClassVar[str]  # of its files
    kind: ClassVar[str]  # as error messages call it

    def __init__(self, model: bytes) -> None:
        self.model = model

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.model,)

    @abstractmethod
    def id_of(self, piece: str) -> int | None:
        """Return the id of a piece by its name; None if there is none of that name."""

    def ids_of(self, pieces: Iterable[str]) -> list[int]:
        """Return the ids of pieces by their names; raise UserError for a name that none has."""
        ids = []
        for piece in pieces:
            if (number := self.id_of(piece)) is None:
                raise UserError(f"{piece[:40]!r} is not a subword of the model")
            ids.append(number)
        return ids

    def save(self, path: str | Path) -> None:
        """Write the model to a file."""
        Path(path).write_bytes(self.model)

    @classmethod
    def load(cls: type[Model], path: str | Path) -> Model:
        """Read a model from a file; raise UserError, naming it, where it cannot be read or is no such model."""
        try:
            return cls(Path(path).expanduser().read_bytes())
        except OSError as error:
            raise UserError(f"cannot read the {cls.kind} {path}: {error.strerror}") from None
        except UserError as error:
            raise UserError(f"{path}: {error}") from None


class Vocabulary(PieceModel):
    """The vocabulary of text that is segmented already: the pieces of a line are its parts between white space.

    Plain words, byte-pair encoding as subword-nmt writes it (`hou@@ se`) and sentencepiece's pieces (`_hou se`, with
    U+2581 for the underscore) are recognized by their marks, and merged into words again. A piece outside the
    vocabulary is unknown: its id is UNK, its text `<unk>`.

    Made from the pieces in UTF-8, one per line, most frequent first. Counts or scores after a piece, and special tokens
    among the pieces, are ignored, so that the vocabulary files of other toolkits can be read. Raises UserError for
    other bytes.
    """

    suffix, kind = ".vocab", "vocabulary"

    def __init__(self, model: bytes) -> None:
        try:
            lines = model.decode("utf-8-sig").split("\n")
        except UnicodeDecodeError:
            raise UserError("not a vocabulary: it must be text in UTF-8, one piece per line") from None
        names = dict.fromkeys(line.split()[0] for line in lines if line.strip())
        pieces = [piece for piece in names if piece not in SPECIALS]
        if not pieces:
            raise UserError("not a vocabulary: there is no piece in it")
        super().__init__("".join(f"{piece}\n" for piece in pieces).encode())
        self._names = [*SPECIALS, *pieces]
        self._ids = {piece: number for number, piece in enumerate(self._names) if number > EOS}
        self._marks_words = sum(piece.startswith(WORD_MARK) for piece in pieces) > MARKED_SHARE * len(pieces)

    def __len__(self) -> int:
        return len(self._names)

    def encode(self, lines: Iterable[str]) -> list[list[int]]:
        """Return the ids of each line's pieces, without bos and eos."""
        return [[self._ids.get(piece, UNK) for piece in line.split()] for line in lines]

    def sample(self, lines: Iterable[str], alpha: float, seed: int) -> list[list[int]]:
        """Return `encode(lines)`: the text has one segmentation, and alpha must be 0."""
        assert alpha == 0, "check_sampling refuses it"
        return self.encode(lines)

    def decode(self, ids_of_sentences: Iterable[Iterable[int]]) -> list[str]:
        """Return the text of each sentence: pieces merged into words; pad, bos and eos are dropped."""
        kept = ([i for i in map(int, ids) if i > EOS or i == UNK] for ids in ids_of_sentences)
        return [text_of(self.words(ids)[0]) for ids in kept]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the names of pieces."""
        return [self._names[int(i)] for i in ids]

    def id_of(self, piece: str) -> int | None:
        return SPECIALS.index(piece) if piece in SPECIALS else self._ids.get(piece)

    def parts(self, ids: Iterable[int], line: str) -> tuple[list[str], list[int]]:
        """Return the parts between the spaces of a line, which are its pieces, and 0 ... n - 1."""
        parts = line.split()
        assert len(parts) == len(list(ids)), "the pieces are those of the line"
        return parts, list(range(len(parts)))

    def words(self, ids: Iterable[int], line: str | None = None) -> tuple[list[str], list[int]]:
        """Merge pieces into words; return these, and for each piece the index of its word.

        A special piece is a word of its own. `line`, if given, is their text, and tells what unknown pieces are.
        """
        ids = list(map(int, ids))
        pieces = self.pieces(ids) if line is None else line.split()
        words: list[str] = []
        word_of_piece: list[int] = []
        is_open = False  # whether the next piece may join the last word
        for i, piece in zip(ids, pieces, strict=True):
            is_special = i <= EOS and piece == self._names[i]
            is_start = self._marks_words and piece.startswith(WORD_MARK)
            # A mark alone starts a word that the next piece continues, even if that has a mark too.
            if is_special or not is_open or (is_start and words[-1]):
                words.append("")
            content = piece.removeprefix(WORD_MARK) if self._marks_words else piece.removesuffix(CONTINUATION)
            words[-1] += piece if is_special else content
            word_of_piece.append(len(words) - 1)
            is_open = not is_special and (self._marks_words or piece.endswith(CONTINUATION))
        return words, word_of_piece

    def display_words(self, ids: Iterable[int], line: str | None = None) -> tuple[list[str], list[int]]:
        """Return `words`: the text has been segmented, and is not cut further."""
        return self.words(ids, line)

    def detokenize(self, lines: Iterable[str]) -> list[str]:
        """Return segmented lines as `decode` would write them, to score translations with.

        Unlike there no piece is unknown, and a line without marks stays as it is: references often have none.
        """
        texts = []
        for line in lines:
            pieces = line.split()
            if self._marks_words and any(piece.startswith(WORD_MARK) for piece in pieces):
                joined = "".join(pieces).replace(WORD_MARK, " ")
            else:
                joined = f"{' '.join(pieces)} ".replace(f"{CONTINUATION} ", "")
            texts.append(" ".join(joined.split()))
        return texts

    @classmethod
    def train(cls, lines: Iterable[str], vocab_size: int) -> "Vocabulary":
        """Take the most frequent pieces, at most `vocab_size` including special tokens, ties in alphabetical order;
        raise UserError if there is no text.
        """
        counts = Counter(piece for line in lines for piece in line.split() if piece not in SPECIALS)
        if not counts:
            raise UserError("there is no text to take pieces from: every line is empty")
        ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))
        kept = ranked[: vocab_size - len(SPECIALS)]
        if len(kept) < len(ranked):
            share = sum(counts[piece] for piece in kept) / counts.total()
            message = "kept the %d commonest of %d pieces: %.2f%% of the text; the rest are unknown"
            logger.info(message, len(kept), len(ranked), 100 * share)
            if share < MIN_KNOWN_SHARE:
                logger.warning("that is little: with tokenizer.kind=unigram, for text as it is, no word is unknown")
        return cls("\n".join(kept).encode())
