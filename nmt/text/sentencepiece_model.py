"""Sentencepiece models: learned from text, loaded, and renumbered to the ids of the special pieces used here."""

import io
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from nmt.config.schema import TokenizerConfig
from nmt.errors import UserError, one_line
from nmt.text.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, WORD_MARK

# The model depends on the number of threads (the order of sums), so it is fixed, not that of the machine.
LEARNING_THREADS = 4
RESERVED = "\u2585"  # sentencepiece uses it itself, and would leave out a line that holds it
SPACES = "spaces"  # a normalization that sentencepiece does not have: white space becomes a space


def learn_model(lines: Iterable[str], config: TokenizerConfig, vocab_size: int) -> bytes:
    """Return a serialized model, learned from lines; raise UserError if `vocab_size` is too small for the characters
    of the text, or sentencepiece fails otherwise.
    """
    model = io.BytesIO()
    try:
        with tempfile.TemporaryDirectory() as folder:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(line.replace(RESERVED, " ") for line in lines),
                model_writer=model,
                model_type=config.kind,
                vocab_size=vocab_size,
                hard_vocab_limit=False,
                character_coverage=config.character_coverage,
                **normalization_options(config.normalization, Path(folder)),
                byte_fallback=True,
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                max_sentence_length=2**30,  # longer lines would be left out silently
                num_threads=LEARNING_THREADS,
                minloglevel=2,
            )
    except RuntimeError as error:
        needed = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
        if needed:
            raise UserError(
                f"tokenizer.vocab_size={vocab_size} is too small: the characters of this text, with specials and "
                f"bytes, take {needed[1]}; raise it above that, or lower tokenizer.character_coverage (the rest become "
                "bytes)"
            ) from None
        raise UserError(f"sentencepiece cannot learn subwords from this text: {one_line(error)}") from None
    if config.normalization != SPACES:
        return model.getvalue()
    proto = parse(model.getvalue())
    proto.normalizer_spec.name = SPACES  # in place of the path of its file of rules
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    return bytes(proto.SerializeToString())


def normalization_options(name: str, folder: Path) -> dict[str, Any]:
    """Return the trainer options of sentencepiece for a normalization; a file of rules may be written to `folder`."""
    if name != SPACES:
        return {"normalization_rule_name": name}
    rules = folder / "rules.tsv"  # of code points in hexadecimal
    spaces = (code for code in range(sys.maxunicode) if chr(code).isspace() and chr(code) != " ")
    rules.write_text("".join(f"{code:x}\t{ord(' '):x}\n" for code in spaces), encoding="ascii")
    return {"normalization_rule_tsv": str(rules)}


def parse(model: bytes) -> Any:
    """Return a serialized model as a message: its pieces and settings."""
    from sentencepiece import sentencepiece_model_pb2

    message: Any = sentencepiece_model_pb2
    return message.ModelProto.FromString(model)


def normalize(lines: Sequence[str], normalization: str) -> list[str]:
    """Return lines as one of sentencepiece's own normalizations makes them."""
    normalizer = sentencepiece.SentencePieceNormalizer(rule_name=normalization)
    return [line.replace(WORD_MARK, " ") for line in normalizer.normalize(list(lines))]


def load_model(model: bytes) -> tuple[bytes, sentencepiece.SentencePieceProcessor]:
    """Return a serialized model and its processor, with pad, unk, bos and eos at 0, 1, 2 and 3: one that has them
    elsewhere, or not at all, is renumbered. Raises UserError for bytes that are not a sentencepiece model.
    """
    processor = _processor(model)
    ids = (processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id())
    if ids == (PAD, UNK, BOS, EOS):
        return model, processor
    model = _renumbered(model, ids)
    return model, _processor(model)


def _processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    try:
        if model:  # sentencepiece takes empty bytes for "no model given"
            return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError:
        pass
    raise UserError("not a sentencepiece model")


def _renumbered(model: bytes, ids: tuple[int, int, int, int]) -> bytes:
    """Return the model with pad, unk, bos and eos at 0 to 3: those it has are moved, missing ones are added.

    Segmentations do not change: both algorithms rank pieces by score, not by id.
    """
    proto = parse(model)
    message = type(proto)
    kinds = message.SentencePiece
    specials = [proto.pieces[i] if i >= 0 else kinds(piece=name) for i, name in zip(ids, SPECIALS, strict=True)]
    names = {piece.piece for piece in specials}
    pieces = specials + [piece for piece in proto.pieces if piece.piece not in names]
    for piece, kind in zip(specials, (kinds.CONTROL, kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL), strict=True):
        piece.type = kind
    renumbered = message(pieces=pieces, trainer_spec=proto.trainer_spec, normalizer_spec=proto.normalizer_spec)
    if proto.HasField("denormalizer_spec"):
        renumbered.denormalizer_spec.CopyFrom(proto.denormalizer_spec)
    spec = renumbered.trainer_spec
    spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = PAD, UNK, BOS, EOS
    spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = (piece.piece for piece in specials)
    spec.vocab_size = len(pieces)
    return bytes(renumbered.SerializeToString())
