"""Subwords: sentencepiece models that are learned inside the run and saved in its checkpoints.

A unigram model (Kudo, 2018) or byte-pair encoding (Sennrich et al., 2016), by sentencepiece (Kudo & Richardson,
2018). A character without a piece of its own is spelt in UTF-8 bytes, so nothing is ever unknown. Text that is
segmented already keeps its pieces (`nmt.text.vocabulary`).
"""

import io
import logging
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from nmt.config.schema import TokenizerConfig
from nmt.errors import UserError
from nmt.text.sampling import SAMPLERS, Sampler
from nmt.text.vocabulary import BOS as BOS  # this is where the rest of nmt looks for the ids
from nmt.text.vocabulary import EOS as EOS
from nmt.text.vocabulary import PAD as PAD
from nmt.text.vocabulary import SPECIALS as SPECIALS
from nmt.text.vocabulary import UNK as UNK
from nmt.text.vocabulary import WORD_MARK as WORD_MARK
from nmt.text.vocabulary import Vocabulary, read_model

# Results depend on the number of threads (the order of sums), so it is fixed and not that of the machine.
LEARNING_THREADS = 4
LEARNING_LINES = 2_000_000

logger = logging.getLogger(__name__)


class Tokenizer:
    """One sentencepiece model with pad, unk, bos and eos at 0, 1, 2 and 3; `len()` is the vocabulary's size.

    Args:
        model: a serialized sentencepiece model. Where its special pieces stand elsewhere, or are missing, it is
            renumbered; segmentations do not change.

    Raises:
        UserError: when the bytes are not a sentencepiece model.
    """

    suffix = ".model"

    def __init__(self, model: bytes) -> None:
        processor = _processor(model)
        ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
        if ids != (PAD, UNK, BOS, EOS):
            model = _with_own_specials(model, ids)
            processor = _processor(model)
        self.model = model
        self._processor = processor
        self._samplers: dict[float, Sampler] = {}

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[bytes]]:
        return Tokenizer, (self.model,)

    def encode(self, lines: Iterable[str]) -> list[list[int]]:
        """Return the subword ids of each line, without bos and eos."""
        ids: list[list[int]] = self._processor.encode(list(lines), out_type=int, num_threads=1)
        return ids

    def sample(self, lines: Iterable[str], alpha: float, seed: int) -> list[list[int]]:
        """Segment each line at random: subword regularization, reproducible by seed.

        Unigram: a segmentation x with P(x | line)^alpha / Z (Kudo, 2018). BPE: each merge is left out with
        probability alpha (BPE-dropout, Provilkov et al., 2020). At alpha = 0 this is `encode`.
        """
        if alpha == 0:
            return self.encode(lines)
        if alpha not in self._samplers:
            self._samplers[alpha] = _sampler(self._processor, alpha)
        return self._samplers[alpha].sample(list(lines), seed)

    def decode(self, ids_of_sentences: Iterable[Iterable[int]]) -> list[str]:
        """Return the text of each sentence: specials dropped, always one line (a newline becomes a space)."""
        kept = [[int(i) for i in ids if i > EOS] for ids in ids_of_sentences]
        texts: list[str] = self._processor.decode(kept, num_threads=1) if kept else []
        return [text.replace("\n", " ") for text in texts]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the pieces by name: words begin with U+2581, bytes look like `<0xE2>`."""
        return [self._processor.id_to_piece(int(i)) for i in ids]

    def words(self, ids: Iterable[int], line: str | None = None) -> tuple[list[str], list[int]]:
        """Merge subwords at the word mark, or where the text that they are of has its spaces.

        Args:
            ids: the subwords.
            line: the text that they are of, whose own words are wanted: normalization changes letters, and may part
                it otherwise (`l´homme` has a space once the accent is taken apart). Where it cannot be told which piece
                is of which word, they are the model's.

        Returns:
            The words, bytes decoded, and for each piece the index of its word. A control piece (pad, bos, eos) is
            a word of its own, under its own name.
        """
        ids = list(map(int, ids))
        merged = self._merged(ids)
        if line is None:
            return merged
        own = line.split()
        # As many are the same ones, and to ask for the place of every piece takes longer than all the rest.
        return (own, merged[1]) if len(own) == len(merged[0]) else self._words_between_spaces(ids, line) or merged

    def parts(self, ids: Iterable[int], line: str) -> tuple[list[str], list[int]]:
        """Return what stands between the spaces of a line, its words, and for each piece the index of its part."""
        return self.words(ids, line)

    def _merged(self, ids: Iterable[int]) -> tuple[list[str], list[int]]:
        words: list[bytes] = []
        word_of_piece: list[int] = []
        is_open = False  # may the next piece still join the last word?
        for i in map(int, ids):
            is_control = self._processor.is_control(i)
            content, is_start = self._content(i)
            # A mark that stands alone opens a word that the next piece fills, with or without a mark of its own.
            if not is_open or is_control or (is_start and words[-1]):
                words.append(b"")
            words[-1] += content
            word_of_piece.append(len(words) - 1)
            is_open = not is_control
        return [word.decode("utf-8", errors="replace") for word in words], word_of_piece

    def _words_between_spaces(self, ids: list[int], line: str) -> tuple[list[str], list[int]] | None:
        """Return the words of a text, by what each piece stands for in it.

        None where ids are another segmentation, a piece reaches over several words, or a word has no piece.
        """
        from sentencepiece import sentencepiece_pb2

        message: Any = sentencepiece_pb2
        found = message.SentencePieceText.FromString(self._processor.encode(line, out_type="serialized_proto"))
        if [piece.id for piece in found.pieces] != ids or any(WORD_MARK in piece.piece[1:] for piece in found.pieces):
            return None
        spans = list(re.finditer(r"\S+", line))
        ends = [len(line[: span.end()].encode()) for span in spans]
        # A piece belongs to the word in which it ends; a space, and what stands for nothing, to the word after it.
        word_of_piece = [bisect_right(ends, max(piece.begin, piece.end - 1)) for piece in found.pieces]
        if set(word_of_piece) != set(range(len(spans))):
            return None
        return [span.group() for span in spans], word_of_piece

    def _content(self, i: int) -> tuple[bytes, bool]:
        """Return the bytes of a piece, and whether it carries the mark of a word's start."""
        piece = self._processor.id_to_piece(i)
        if self._processor.is_byte(i):
            return bytes([int(piece[3:-1], 16)]), False
        return piece.removeprefix(WORD_MARK).replace(WORD_MARK, " ").encode(), piece.startswith(WORD_MARK)

    def plain(self, lines: Iterable[str]) -> list[str]:
        """Return lines as they are: text for sentencepiece is not segmented (see `Vocabulary.plain`)."""
        return list(lines)

    def save(self, path: str | Path) -> None:
        """Write the sentencepiece model to a file."""
        Path(path).write_bytes(self.model)

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Read a sentencepiece model from a file.

        Raises:
            UserError: when it cannot be read or is not a sentencepiece model.
        """
        return read_model(cls, path, "sentencepiece model")

    @classmethod
    def train(cls, lines: Iterable[str], config: TokenizerConfig, vocab_size: int) -> "Tokenizer":
        """Learn a model of at most `vocab_size` pieces; the same lines always give the same model.

        Where the text has too few subwords the vocabulary gets smaller, with a notice in the log.

        Raises:
            UserError: when there is no text, or more distinct characters than `vocab_size` has room for.
        """
        lines = [line for line in lines if line and not line.isspace()]
        if not lines:
            raise UserError("there is no text to learn subwords from: every line is empty")
        tokenizer = cls(_learn(_thinned(lines), config, vocab_size))
        if len(tokenizer) < vocab_size:
            logger.warning(
                "tokenizer.vocab_size lowered from %d to %d: the text has no more subwords", vocab_size, len(tokenizer)
            )
        return tokenizer


class Tokenizers:
    """The tokenizers of the two sides; one and the same object when the vocabulary is joint."""

    def __init__(self, source: Tokenizer | Vocabulary, target: Tokenizer | Vocabulary) -> None:
        self.source = source
        self.target = target

    @property
    def joint(self) -> bool:
        """Whether both sides share one vocabulary."""
        return self.source is self.target

    def agree_with(self, other: "Tokenizers") -> bool:
        """Tell whether the same pieces have the same numbers on both sides."""
        return (self.source.model, self.target.model) == (other.source.model, other.target.model)

    def save(self, folder: str | Path) -> None:
        """Write `joint.model`, or `source.model` and `target.model`, into an existing folder (`.vocab` for pieces)."""
        sides = {"joint": self.source} if self.joint else {"source": self.source, "target": self.target}
        for name, side in sides.items():
            side.save(Path(folder) / f"{name}{side.suffix}")

    @classmethod
    def load(cls, folder: str | Path) -> "Tokenizers":
        """Read what `save` wrote.

        Raises:
            UserError: when the folder does not hold it.
        """
        for kind in (Tokenizer, Vocabulary):
            joint, source, target = (Path(folder) / f"{name}{kind.suffix}" for name in ("joint", "source", "target"))
            if joint.is_file():
                tokenizer = kind.load(joint)
                return cls(tokenizer, tokenizer)
            if source.is_file() and target.is_file():
                return cls(kind.load(source), kind.load(target))
        raise UserError(f"no tokenizer in {folder}: it needs joint.model, or source.model and target.model")


def build_tokenizers(sources: Iterable[str], targets: Iterable[str], config: TokenizerConfig) -> Tokenizers:
    """Learn the subwords of both sides, or load the models that the configuration names.

    Raises:
        UserError: when a joint vocabulary is asked for and two different models are given, when segmented text is to
            be segmented at random, and see `Tokenizer` and `Vocabulary`.
    """
    if config.kind == "whitespace" and config.sampling:
        raise UserError(
            f"tokenizer.sampling={config.sampling:g} cannot segment text anew that is segmented already "
            "(tokenizer.kind=whitespace): set it to 0"
        )
    if not config.joint:
        return Tokenizers(
            _built(config.source_model, sources, config, "source"),
            _built(config.target_model, targets, config, "target"),
        )
    given = {path for path in (config.source_model, config.target_model) if path}
    if len(given) > 1:
        raise UserError(
            f"tokenizer.joint=true takes one model, but tokenizer.source_model={config.source_model} and "
            f"tokenizer.target_model={config.target_model} differ: give one of them, or set tokenizer.joint=false"
        )
    tokenizer = _built(given.pop() if given else None, [*sources, *targets], config, "joint")
    return Tokenizers(tokenizer, tokenizer)


def _built(model: str | None, lines: Iterable[str], config: TokenizerConfig, side: str) -> Tokenizer | Vocabulary:
    if config.kind == "whitespace":
        return Vocabulary.load(model) if model else Vocabulary.train(lines, config.vocab_size)
    if model:
        return Tokenizer.load(model)
    tokenizer = Tokenizer.train(lines, config, config.vocab_size)
    logger.info("learned %d %s subwords (%s)", len(tokenizer), side, config.kind)
    return tokenizer


def _thinned(lines: list[str]) -> list[str]:
    """Every n-th line of a corpus that is larger than sentencepiece can well learn from."""
    stride = -(-len(lines) // LEARNING_LINES)
    if stride > 1:
        logger.info("subwords are learned from one line in %d", stride)
    return lines[::stride]


def _learn(lines: Sequence[str], config: TokenizerConfig, vocab_size: int) -> bytes:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=config.kind,
            vocab_size=vocab_size,
            hard_vocab_limit=False,
            character_coverage=config.character_coverage,
            normalization_rule_name=config.normalization,
            byte_fallback=True,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            max_sentence_length=2**30,  # longer lines would be left out without a word
            num_threads=LEARNING_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _learning_error(error, vocab_size) from None
    return model.getvalue()


def _learning_error(error: RuntimeError, vocab_size: int) -> Exception:
    needed = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
    if needed:
        return UserError(
            f"tokenizer.vocab_size={vocab_size} is too small: the characters of this text, with specials and bytes, "
            f"take {needed[1]}; raise it above that, or lower tokenizer.character_coverage (the rest become bytes)"
        )
    return UserError(f"sentencepiece cannot learn subwords from this text: {' '.join(str(error).split())}")


def _processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    try:
        if model:  # sentencepiece takes empty bytes for "no model given"
            return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        pass
    raise UserError("not a sentencepiece model")


def _sampler(processor: Any, alpha: float) -> Sampler:
    from sentencepiece import sentencepiece_model_pb2

    message: Any = sentencepiece_model_pb2
    kind = message.ModelProto.FromString(processor.serialized_model_proto()).trainer_spec.model_type
    if kind not in SAMPLERS:
        raise UserError("tokenizer.sampling needs a unigram or BPE model: set it to 0, or give another model")
    return SAMPLERS[kind](processor, alpha)


def _with_own_specials(model: bytes, ids: tuple[int, int, int, int]) -> bytes:
    """Return the model with pad, unk, bos and eos at 0 to 3: those it has are moved, missing ones are added.

    Safe because neither algorithm looks at ids: a unigram piece is weighed, and a merge ranked, by its score.
    """
    # Imported here, and above, because it needs protobuf, which nothing else of ours does.
    from sentencepiece import sentencepiece_model_pb2

    message: Any = sentencepiece_model_pb2
    proto = message.ModelProto.FromString(model)
    kinds = message.ModelProto.SentencePiece
    found = [proto.pieces[i] if i >= 0 else kinds(piece=name) for i, name in zip(ids, SPECIALS, strict=True)]
    names = {piece.piece for piece in found}
    pieces = found + [piece for piece in proto.pieces if piece.piece not in names]
    for piece, kind in zip(found, (kinds.CONTROL, kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL), strict=True):
        piece.type = kind
    renumbered = message.ModelProto(
        pieces=pieces, trainer_spec=proto.trainer_spec, normalizer_spec=proto.normalizer_spec
    )
    if proto.HasField("denormalizer_spec"):
        renumbered.denormalizer_spec.CopyFrom(proto.denormalizer_spec)
    spec = renumbered.trainer_spec
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = PAD, UNK, BOS, EOS
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = (piece.piece for piece in found)
    spec.vocab_size = len(pieces)
    serialized: bytes = renumbered.SerializeToString()
    return serialized
