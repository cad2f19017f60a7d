"""The ids that every vocabulary shares, and the vocabulary of text that brings its own pieces."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from nmt.errors import UserError

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
WORD_MARK = "\u2581"
CONTINUATION = "@@"

# Sentencepiece's vocabularies mark a good part of their pieces; a stray mark among plain words is no reason to join.
MARKED_SHARE = 0.01

Model = TypeVar("Model")

logger = logging.getLogger(__name__)


def read_model(make: Callable[[bytes], Model], path: str | Path, kind: str) -> Model:
    """Make something of the bytes of a file.

    Raises:
        UserError: naming the file, when it cannot be read or nothing can be made of it.
    """
    try:
        return make(Path(path).expanduser().read_bytes())
    except OSError as error:
        raise UserError(f"cannot read the {kind} {path}: {error.strerror}") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def text_of(words: Iterable[str]) -> str:
    """Return words as a line; one of which nothing is left, a mark that stands alone, is dropped."""
    return " ".join(filter(None, words))


class Vocabulary:
    """Pieces by number, for text that is segmented already: a line's pieces are its parts between white space.

    Plain words, byte-pair encoding as subword-nmt writes it (`hou@@ se`) and sentencepiece's pieces (`_hou se`, with
    U+2581 for the underscore) are told apart by their marks, and joined to words again. A piece that is not in the
    vocabulary is unknown, and shows as `<unk>`.

    Args:
        model: the pieces in UTF-8, one a line, the commonest first. Counts or scores behind a piece, and specials
            among the pieces, are left out, so that the vocabulary files of other toolkits will do.

    Raises:
        UserError: when the bytes are not that.
    """

    suffix = ".vocab"

    def __init__(self, model: bytes) -> None:
        try:
            lines = model.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            raise UserError("not a vocabulary: it must be text in UTF-8, one piece a line") from None
        found = dict.fromkeys(line.split()[0] for line in lines if line.strip())
        pieces = [piece for piece in found if piece not in SPECIALS]
        if not pieces:
            raise UserError("not a vocabulary: there is no piece in it")
        self.model = "".join(f"{piece}\n" for piece in pieces).encode()
        self._names = [*SPECIALS, *pieces]
        self._ids = {piece: number for number, piece in enumerate(self._names) if number > EOS}
        self._marks_words = sum(piece.startswith(WORD_MARK) for piece in pieces) > MARKED_SHARE * len(pieces)

    def __len__(self) -> int:
        return len(self._names)

    def __reduce__(self) -> tuple[type["Vocabulary"], tuple[bytes]]:
        return Vocabulary, (self.model,)

    def encode(self, lines: Iterable[str]) -> list[list[int]]:
        """Return the ids of each line's pieces, without bos and eos."""
        return [[self._ids.get(piece, UNK) for piece in line.split()] for line in lines]

    def sample(self, lines: Iterable[str], alpha: float, seed: int) -> list[list[int]]:
        """There is one segmentation, that of the text: `encode`, and no other alpha than 0."""
        assert alpha == 0, "build_tokenizers refuses it"
        return self.encode(lines)

    def decode(self, ids_of_sentences: Iterable[Iterable[int]]) -> list[str]:
        """Return the text of each sentence: pieces joined to words, pad, bos and eos dropped."""
        kept = ([i for i in map(int, ids) if i > EOS or i == UNK] for ids in ids_of_sentences)
        return [text_of(self.words(ids)[0]) for ids in kept]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the pieces by name."""
        return [self._names[int(i)] for i in ids]

    def parts(self, ids: Iterable[int], line: str) -> tuple[list[str], list[int]]:
        """Return what stands between the spaces of a line, and for each piece the index of its part: itself."""
        parts = line.split()
        assert len(parts) == len(list(ids)), "the pieces are those of the line"
        return parts, list(range(len(parts)))

    def words(self, ids: Iterable[int], line: str | None = None) -> tuple[list[str], list[int]]:
        """Merge pieces to words.

        Args:
            ids: the pieces.
            line: the text that they are of, which says what an unknown piece was.

        Returns:
            The words, and for each piece the index of its word. A special piece is a word of its own.
        """
        ids = list(map(int, ids))
        pieces = self.pieces(ids) if line is None else line.split()
        words: list[str] = []
        word_of_piece: list[int] = []
        is_open = False  # may the next piece still join the last word?
        for i, piece in zip(ids, pieces, strict=True):
            is_special = i <= EOS and piece == self._names[i]
            is_start = self._marks_words and piece.startswith(WORD_MARK)
            # A mark that stands alone opens a word that the next piece fills, with or without a mark of its own.
            if is_special or not is_open or (is_start and words[-1]):
                words.append("")
            words[-1] += piece if is_special else self._content(piece)
            word_of_piece.append(len(words) - 1)
            is_open = not is_special and (self._marks_words or piece.endswith(CONTINUATION))
        return words, word_of_piece

    def _content(self, piece: str) -> str:
        return piece.removeprefix(WORD_MARK) if self._marks_words else piece.removesuffix(CONTINUATION)

    def plain(self, lines: Iterable[str]) -> list[str]:
        """Return segmented lines as `decode` would show them; what to score translations with.

        Unlike there no piece is unknown, and a line without marks stays as it is, since references often are.
        """
        texts = []
        for line in lines:
            pieces = line.split()
            marked = self._marks_words and any(piece.startswith(WORD_MARK) for piece in pieces)
            if marked:
                joined = "".join(pieces).replace(WORD_MARK, " ")
            else:
                joined = f"{' '.join(pieces)} ".replace(f"{CONTINUATION} ", "")
            texts.append(" ".join(joined.split()))
        return texts

    def save(self, path: str | Path) -> None:
        """Write the pieces to a file, one a line."""
        Path(path).write_bytes(self.model)

    @classmethod
    def load(cls, path: str | Path) -> "Vocabulary":
        """Read a vocabulary from a file.

        Raises:
            UserError: when it cannot be read or is not a vocabulary.
        """
        return read_model(cls, path, "vocabulary")

    @classmethod
    def train(cls, lines: Iterable[str], vocab_size: int) -> "Vocabulary":
        """Take the commonest pieces, at most `vocab_size` with specials; equally common ones in alphabetical order.

        Raises:
            UserError: when there is no text.
        """
        counts = Counter(piece for line in lines for piece in line.split())
        for special in SPECIALS:
            counts.pop(special, None)
        if not counts:
            raise UserError("there is no text to take pieces from: every line is empty")
        ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))
        kept = ranked[: vocab_size - len(SPECIALS)]
        if len(kept) < len(ranked):
            share = sum(counts[piece] for piece in kept) / counts.total()
            message = "kept the %d commonest of %d pieces: %.2f%% of the text; the rest are unknown"
            logger.info(message, len(kept), len(ranked), 100 * share)
        return cls("\n".join(kept).encode())
