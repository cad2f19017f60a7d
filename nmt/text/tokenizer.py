"""Subword tokenizers, learned in the run and saved in its checkpoints; one for each side, or one for both.

A unigram model (Kudo, 2018) or byte-pair encoding (Sennrich et al., 2016), by sentencepiece (Kudo & Richardson,
2018). A character without a piece of its own becomes its UTF-8 bytes, so no text has unknown pieces. For text that is
segmented already, `nmt.text.vocabulary.Vocabulary` takes the place of `Tokenizer`.
"""

import codecs
import logging
import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

from nmt.config.schema import TokenizerConfig
from nmt.errors import UserError
from nmt.text.sentencepiece_model import learn_model, load_model
from nmt.text.subword_sampling import Sampler, build_sampler
from nmt.text.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, WORD_MARK, PieceModel, Vocabulary
from nmt.text.words import cut_words

__all__ = ["BOS", "EOS", "PAD", "SPECIALS", "UNK", "WORD_MARK", "Tokenizer", "Tokenizers", "build_tokenizers"]

logger = logging.getLogger(__name__)


class Tokenizer(PieceModel):
    """One sentencepiece model with pad, unk, bos and eos at 0, 1, 2 and 3; `len()` is the vocabulary's size.

    Made from a serialized model; one with other ids is renumbered, and segmentations do not change. Raises UserError
    for bytes that are not a sentencepiece model.
    """

    suffix, kind = ".model", "sentencepiece model"

    def __init__(self, model: bytes) -> None:
        model, self._processor = load_model(model)
        super().__init__(model)
        self._samplers: dict[float, Sampler] = {}

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def encode(self, lines: Iterable[str]) -> list[list[int]]:
        """Return the subword ids of each line, without bos and eos."""
        return self._processor.encode(list(lines), out_type=int, num_threads=1)

    def sample(self, lines: Iterable[str], alpha: float, seed: int) -> list[list[int]]:
        """Segment each line at random: subword regularization, reproducible by seed.

        Unigram: a segmentation x with P(x | line)^alpha / Z (Kudo, 2018). BPE: each merge is left out with
        probability alpha, for good (BPE-dropout, Provilkov et al., 2020, as sentencepiece has it). At alpha = 0 this
        is `encode`.
        """
        if alpha == 0:
            return self.encode(lines)
        if alpha not in self._samplers:
            self._samplers[alpha] = build_sampler(self._processor, alpha)
        return self._samplers[alpha].sample(list(lines), seed)

    def decode(self, ids_of_sentences: Iterable[Iterable[int]]) -> list[str]:
        """Return the text of each sentence as one line: special tokens are dropped, a newline becomes a space."""
        kept = [[int(i) for i in ids if i > EOS] for ids in ids_of_sentences]
        texts = self._processor.decode(kept, num_threads=1) if kept else []
        return [text.replace("\n", " ") for text in texts]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the pieces by name: words begin with U+2581, bytes look like `<0xE2>`."""
        return [self._processor.id_to_piece(int(i)) for i in ids]

    def id_of(self, piece: str) -> int | None:
        number = self._processor.piece_to_id(piece)  # that of the unknown piece, where there is none
        return number if self._processor.id_to_piece(number) == piece else None

    def words(self, ids: Iterable[int], line: str | None = None) -> tuple[list[str], list[int]]:
        """Merge subwords into words at the word mark, bytes decoded; return these, and the index of each piece's word.

        A control piece (pad, bos, eos) is a word of its own. With `line`, their text, the words are those of the text.
        Normalization changes letters, and sometimes spaces (`l´homme` gets one when the accent is decomposed): where a
        piece cannot be assigned to a word of `line`, the words are the model's all the same.
        """
        ids = list(map(int, ids))
        merged = self._merged(ids)
        if line is None:
            return merged
        line_words = line.split()
        # Equally many words are taken to be the same ones; comparing spans would take longer than all the rest.
        if len(line_words) == len(merged[0]):
            return line_words, merged[1]
        return self._words_between_spaces(ids, line) or merged

    def parts(self, ids: Iterable[int], line: str) -> tuple[list[str], list[int]]:
        """Return the parts between the spaces of a line, here its words, and for each piece the index of its part."""
        return self.words(ids, line)

    def display_words(self, ids: Iterable[int], line: str | None = None) -> tuple[list[str], list[int]]:
        """Return `words`, split for display: punctuation is separate, and in spaceless scripts each piece is a word.

        A piece is never divided, even if it contains both letters and punctuation, or several characters.
        """
        ids = list(map(int, ids))
        words, word_of_piece = self.words(ids, line)
        ends = self._ends(ids, words, word_of_piece)
        if ends is None and line is not None:
            ends = self._ends_in(line, ids, words, word_of_piece)
        return (words, word_of_piece) if ends is None else cut_words(words, word_of_piece, ends)

    def detokenize(self, lines: Iterable[str]) -> list[str]:
        """Return the lines unchanged: only text for a `Vocabulary` is segmented (see `Vocabulary.detokenize`)."""
        return list(lines)

    def _merged(self, ids: Iterable[int]) -> tuple[list[str], list[int]]:
        words: list[bytes] = []
        word_of_piece: list[int] = []
        is_open = False  # whether the next piece may join the last word
        for i in ids:
            is_control, is_start = self._processor.is_control(i), self._processor.id_to_piece(i).startswith(WORD_MARK)
            # A mark alone starts a word that the next piece continues, even if that has a mark too.
            if not is_open or is_control or (is_start and words[-1]):
                words.append(b"")
            words[-1] += self._content(i)
            word_of_piece.append(len(words) - 1)
            is_open = not is_control
        return [word.decode("utf-8", errors="replace") for word in words], word_of_piece

    def _content(self, i: int) -> bytes:
        """Return the text of a piece in UTF-8, without the mark before it."""
        piece: str = self._processor.id_to_piece(i)
        if self._processor.is_byte(i):
            return bytes([int(piece[3:-1], 16)])
        return piece.removeprefix(WORD_MARK).replace(WORD_MARK, " ").encode()

    def _words_between_spaces(self, ids: list[int], line: str) -> tuple[list[str], list[int]] | None:
        """Return the words of a line, with pieces assigned by their spans in it; None if it has other ids, a piece is
        in several words, or a word has no piece.
        """
        spans = self._spans(ids, line)
        if spans is None or any(WORD_MARK in piece[1:] for piece in self.pieces(ids)):
            return None
        words = list(re.finditer(r"\S+", line))
        ends = [word.end() for word in words]
        # A piece belongs to the word in which it ends; a space, or an empty span, to the word after it.
        word_of_piece = [bisect_right(ends, max(begin, end - 1)) for begin, end in spans]
        if set(word_of_piece) != set(range(len(words))):
            return None
        return [word.group() for word in words], word_of_piece

    def _spans(self, ids: list[int], line: str) -> list[tuple[int, int]] | None:
        """Return where each piece begins and ends in a line, in characters; None if the line has other ids."""
        from sentencepiece import sentencepiece_pb2

        text: Any = sentencepiece_pb2
        pieces = text.SentencePieceText.FromString(self._processor.encode(line, out_type="serialized_proto")).pieces
        if [piece.id for piece in pieces] != ids:
            return None
        ends = list(accumulate(len(character.encode()) for character in line))  # of characters, in bytes
        return [(bisect_right(ends, piece.begin), bisect_right(ends, piece.end)) for piece in pieces]

    def _ends(self, ids: list[int], words: list[str], word_of_piece: list[int]) -> list[int] | None:
        """Return how many characters of its word are read when each piece ends; None if normalization has changed the
        number of characters of a word.
        """
        ends: list[int] = []
        decoder, read = codecs.getincrementaldecoder("utf-8")(errors="replace"), 0
        for i, word, following in zip(ids, word_of_piece, [*word_of_piece[1:], -1], strict=False):
            read += len(decoder.decode(self._content(i), final=word != following))
            ends.append(read)
            if word != following:
                if read != len(words[word]):
                    return None
                read = 0
        return ends

    def _ends_in(self, line: str, ids: list[int], words: list[str], word_of_piece: list[int]) -> list[int] | None:
        """Return the same from the spans of the pieces in their line; None if its words are others."""
        spans = self._spans(ids, line)
        if spans is None or words != line.split():
            return None
        starts = [word.start() for word in re.finditer(r"\S+", line)]
        return [max(0, end - starts[word]) for (_, end), word in zip(spans, word_of_piece, strict=True)]

    @classmethod
    def train(cls, lines: Iterable[str], config: TokenizerConfig, vocab_size: int) -> "Tokenizer":
        """Learn a model of at most `vocab_size` pieces; the same lines always give the same model.

        There are fewer, with a warning in the log, where the text has too few subwords. Raises UserError if there is no
        text, or `vocab_size` has no room for its characters.
        """
        lines = [line for line in lines if line and not line.isspace()]
        if not lines:
            raise UserError("there is no text to learn subwords from: every line is empty")
        tokenizer = cls(learn_model(lines, config, vocab_size))
        if len(tokenizer) < vocab_size:
            logger.warning(
                "tokenizer.vocab_size lowered from %d to %d: the text has no more subwords", vocab_size, len(tokenizer)
            )
        return tokenizer


@dataclass(frozen=True, eq=False)
class Tokenizers:
    """The tokenizers of the two sides; the same object twice when the vocabulary is joint."""

    source: Tokenizer | Vocabulary
    target: Tokenizer | Vocabulary

    @property
    def joint(self) -> bool:
        """Whether both sides share one vocabulary."""
        return self.source is self.target

    def agree_with(self, other: "Tokenizers") -> bool:
        """Return whether the same pieces have the same numbers on both sides."""
        return (self.source.model, self.target.model) == (other.source.model, other.target.model)

    def save(self, folder: str | Path) -> None:
        """Write `joint.model`, or `source.model` and `target.model`, into an existing folder (`.vocab` for pieces)."""
        sides = {"joint": self.source} if self.joint else {"source": self.source, "target": self.target}
        for name, side in sides.items():
            side.save(Path(folder) / f"{name}{side.suffix}")

    @classmethod
    def load(cls, folder: str | Path) -> "Tokenizers":
        """Read what `save` wrote; raise UserError if the folder does not hold it, or holds that of two models."""
        for kind in (Tokenizer, Vocabulary):
            joint, source, target = (Path(folder) / f"{name}{kind.suffix}" for name in ("joint", "source", "target"))
            if joint.is_file() and source.is_file():
                raise UserError(f"{folder} has {joint.name} and {source.name}: remove those that are not the model's")
            if joint.is_file():
                tokenizer = kind.load(joint)
                return cls(tokenizer, tokenizer)
            if source.is_file() and target.is_file():
                return cls(kind.load(source), kind.load(target))
        raise UserError(f"no tokenizer in {folder}: it needs joint.model, or source.model and target.model")


def check_sampling(config: TokenizerConfig) -> None:
    """Raise UserError if random segmentation is requested for pre-segmented text."""
    if config.kind == "whitespace" and config.sampling:
        raise UserError(
            f"tokenizer.sampling={config.sampling:g} cannot segment text anew that is segmented already "
            "(tokenizer.kind=whitespace): set it to 0"
        )


def build_tokenizers(sources: Iterable[str], targets: Iterable[str], config: TokenizerConfig) -> Tokenizers:
    """Learn the subwords of both sides, or load the models that the configuration names; raise UserError as
    `check_sampling`, `Tokenizer` and `Vocabulary`, and for a joint vocabulary with two different models.
    """
    check_sampling(config)
    if not config.joint:
        return Tokenizers(
            _built(config.source_model, sources, config, "source"),
            _built(config.target_model, targets, config, "target"),
        )
    models = {path for path in (config.source_model, config.target_model) if path}
    if len(models) > 1:
        raise UserError(
            f"tokenizer.joint=true takes one model, but tokenizer.source_model={config.source_model} and "
            f"tokenizer.target_model={config.target_model} differ: give one of them, or set tokenizer.joint=false"
        )
    tokenizer = _built(models.pop() if models else None, chain(sources, targets), config, "joint")
    return Tokenizers(tokenizer, tokenizer)


def _built(model: str | None, lines: Iterable[str], config: TokenizerConfig, side: str) -> Tokenizer | Vocabulary:
    if model:
        tokenizer = Vocabulary.load(model) if config.kind == "whitespace" else Tokenizer.load(model)
        logger.info("%d %s subwords of %s; keys that say how to learn them have no effect", len(tokenizer), side, model)
        return tokenizer
    if config.kind == "whitespace":
        return Vocabulary.train(lines, config.vocab_size)
    tokenizer = Tokenizer.train(lines, config, config.vocab_size)
    logger.info("learned %d %s subwords (%s)", len(tokenizer), side, config.kind)
    return tokenizer
