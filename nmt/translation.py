"""Sentence pairs and translations, with the attention between their words: for comparing, drawing and display."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from nmt.alignment.links import argmax_links
from nmt.alignment.pharaoh import format_pharaoh
from nmt.alignment.weights import Alignment, concatenate, empty_alignment, merge_words
from nmt.errors import UserError
from nmt.text.long_lines import join_texts
from nmt.view.alignment import alignment_html, round_weights

Words = tuple[list[str], list[int]]  # words, and for each piece the index of its word

MAX_WEIGHTS = 25_000_000  # of a translation in parts: 200 MB

if TYPE_CHECKING:
    from nmt.view.heatmap import Heatmap


@dataclass(frozen=True, eq=False)
class SentencePair(Alignment):
    """A sentence and its translation, with the attention between their words. Notebooks show it: point at a word."""

    source: str
    text: str

    def plot(self, title: str | None = None) -> "Heatmap":
        """Draw the attention as a heatmap, which a notebook shows, and `savefig(path)` writes."""
        from nmt.view.heatmap import draw_heatmap  # matplotlib takes a second to load

        return draw_heatmap(self.weights, self.source_words, self.target_words, title=title)

    @property
    def links(self) -> str:
        """Each target word's strongest link, `source-target`, counted from 0."""
        return format_pharaoh(argmax_links(self.weights))

    def to_dict(self) -> dict[str, Any]:
        """Return it in JSON's types: weights have four digits, `alignment` the strongest link of each target word."""
        return {
            "source": self.source,
            "text": self.text,
            "source_words": self.source_words,
            "target_words": self.target_words,
            "alignment": self.links,
            "weights": round_weights(self.weights),
        }

    def _repr_html_(self) -> str:
        return alignment_html(self.to_dict())


@dataclass(frozen=True, eq=False)
class Translation(SentencePair):
    """A translation of a sentence, with the attention of the search that found it."""

    score: float
    log_prob: float
    pieces: list[str]
    words: Words  # of the pieces: not cut into characters, and with copies in the place of unknown words
    cut: bool = False  # it was cut off at the longest length that the search allows
    parts: int = 1  # number of parts the source was cut into; 1 unless it is far longer than the training sentences

    @property
    def is_unaligned(self) -> bool:
        """Whether there is text but no words and weights, because the sentence is too long."""
        return bool(self.pieces) and not self.target_words

    @property
    def line(self) -> str:
        """The text without line breaks."""
        return self.text.replace("\r", " ").replace("\n", " ")

    def to_dict(self) -> dict[str, Any]:
        """Return the object of `nmt.translate --json`: the fields of `SentencePair`, scores, `cut` and `parts`."""
        scores = {"source": self.source, "text": self.text, "score": self.score, "log_prob": self.log_prob}
        return scores | {"cut": self.cut, "parts": self.parts} | super().to_dict()


def empty_translation(sentence: str) -> Translation:
    """Return the translation of a sentence without words."""
    return Translation(
        [], [], np.zeros((0, 0)), source=sentence, text="", score=0.0, log_prob=0.0, pieces=[], words=([], [])
    )


def join_parts(sentence: str, parts: Sequence[list[Translation]]) -> list[Translation]:
    """Combine the translations of a sentence's parts into translations of the sentence, best first.

    Where source words times target words exceed `MAX_WEIGHTS`, a translation in parts has neither words nor weights.
    """
    if len(parts) == 1:
        return [replace(translation, source=sentence) for translation in parts[0]]
    # A part may have fewer translations than others.
    return [join_translations(sentence, translations) for translations in zip(*parts, strict=False)]


def join_translations(sentence: str, parts: Sequence[Translation]) -> Translation:
    """Return the translation of a sentence from one of each of its parts."""
    source_words, target_words = (sum(part.weights.shape[side] for part in parts) for side in (1, 0))
    alignment = concatenate(parts) if source_words * target_words <= MAX_WEIGHTS else empty_alignment()
    return Translation(
        **vars(alignment),
        source=sentence,
        text=join_texts([part.text for part in parts]),
        score=sum(part.score for part in parts) / len(parts),
        log_prob=sum(part.log_prob for part in parts),
        pieces=[piece for part in parts for piece in part.pieces],
        words=join_words([part.words for part in parts]),
        cut=any(part.cut for part in parts),
        parts=len(parts),
    )


def join_words(parts: Sequence[Words]) -> Words:
    """Return the words of consecutive parts, and the index of each piece's word among them."""
    words: list[str] = []
    word_of_piece: list[int] = []
    for part, indices in parts:
        word_of_piece += [len(words) + index for index in indices]
        words += part
    return words, word_of_piece


def alignment_of_words(source: Words, target: Words, weights: Float[np.ndarray, "rows columns"]) -> Alignment:
    """Return the alignment of words from attention between their pieces."""
    return Alignment(source[0], target[0], merge_words(weights, target[1], source[1]))


def copy_unknown_words(alignment: Alignment, unknown: Iterable[int]) -> Alignment:
    """Replace unknown target words by the source words that they attend to most, if any (Luong et al., 2015)."""
    words = list(alignment.target_words)
    for index in unknown:
        if alignment.weights[index].any():
            words[index] = alignment.source_words[int(alignment.weights[index].argmax())]
    return replace(alignment, target_words=words)


def to_sentences(texts: Any) -> list[str]:
    """Return sentences as a list; a text is one sentence. Raise UserError for one that is not a text."""
    try:
        sentences = [texts] if isinstance(texts, str) else list(texts)
    except TypeError:
        raise UserError(f"{texts!r} is neither a sentence nor several: give a text, or a list of texts") from None
    for number, sentence in enumerate(sentences, start=1):
        place = f"sentence {number} of {len(sentences)}"
        if not isinstance(sentence, str):
            raise UserError(f"{place} is {sentence!r}, not a text: leave it out, or give ''")
        try:
            sentence.encode()
        except UnicodeEncodeError:  # non-UTF-8 bytes of a command line arrive as lone surrogates
            raise UserError(f"{place} is not text in UTF-8: convert it first") from None
    return sentences


def to_pairs(sources: Any, targets: Any) -> tuple[list[str], list[str]]:
    """Return sources and targets as `to_sentences` does; raise UserError unless there is a target for each source."""
    source_lines, target_lines = to_sentences(sources), to_sentences(targets)
    if len(source_lines) != len(target_lines):
        numbers = f"{len(source_lines)} sources and {len(target_lines)} targets"
        raise UserError(f"{numbers} are no pairs: give one target a source")
    return source_lines, target_lines
