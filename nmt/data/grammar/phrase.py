"""Phrases: source and target words with their links, and how a phrase is spelled as a pair of lines.

A link is a reference from a target word to source words, not to positions, so phrases are concatenated and reordered
without shifting indices; `spell` looks up positions, and applies French spelling across words (elision, contraction).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

PUNCTUATION = (",", ".")
ELIDED = ("le", "la", "de", "ne", "que", "me")
CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}
ASPIRATED = ("hibou", "hiboux", "héros", "huit")
FRENCH_VOWELS = "aeiouyàâéèêëîïôœùûh"
ENGLISH_VOWELS = "aeiou"


@dataclass(frozen=True, eq=False, slots=True)
class SourceWord:
    """One English word, identified by the object, not by its text."""

    text: str


@dataclass(frozen=True, eq=False, slots=True)
class TargetWord:
    """One French word, and the English words that it is linked to, as sure or as possible links."""

    text: str
    sure: tuple[SourceWord, ...] = ()
    possible: tuple[SourceWord, ...] = ()


@dataclass(frozen=True, slots=True)
class Phrase:
    """A pair of translations; `a + b` concatenates both sides."""

    source: tuple[SourceWord, ...] = ()
    target: tuple[TargetWord, ...] = ()

    def __add__(self, other: "Phrase") -> "Phrase":
        return Phrase(self.source + other.source, self.target + other.target)

    def __len__(self) -> int:
        """Return the number of source words, without punctuation."""
        return sum(word.text not in PUNCTUATION for word in self.source)


def unit(english: str, french: str, head: int = 0) -> Phrase:
    """Words translated as one: every French word has a sure link to the English `head`, possible links to the others.

    In `in front of` -> `devant`, the head is `front`, number 1.
    """
    source = tuple(SourceWord(text) for text in english.split())
    sure = (source[head],)
    possible = tuple(word for word in source if word is not source[head])
    return Phrase(source, tuple(TargetWord(text, sure, possible) for text in french.split()))


def punctuation(mark: str) -> Phrase:
    """A punctuation mark on both sides; `spell` attaches it to the preceding word."""
    assert mark in PUNCTUATION
    return Phrase((SourceWord(mark),), (TargetWord(mark),))


def spell(phrase: Phrase) -> tuple[str, str, str]:
    """Return the source line, the target line and the links in Pharaoh notation, `i-j` sure and `i?j` possible only."""
    target = merge(merge(phrase.target, elide), contract)  # in this order: `de l'` is not contracted
    position = {word: i for i, word in enumerate(word for word in phrase.source if word.text not in PUNCTUATION)}
    links = []
    for j, french in enumerate(word for word in target if word.text not in PUNCTUATION):
        sure = {position[word] for word in french.sure}
        possible = {position[word] for word in french.possible} - sure
        links += [(i, j, "-") for i in sure] + [(i, j, "?") for i in possible]
    alignment = " ".join(f"{i}{mark}{j}" for i, j, mark in sorted(links))
    return _line(fit_articles([word.text for word in phrase.source])), _line([word.text for word in target]), alignment


def begins_with_vowel(french: str) -> bool:
    """Whether words before this one elide: it begins with a vowel or a mute h."""
    return french[0].lower() in FRENCH_VOWELS and french not in ASPIRATED


def merge(words: Sequence[TargetWord], fuse: Callable[[TargetWord, TargetWord], TargetWord | None]) -> list[TargetWord]:
    """Replace a word and the one before it by what `fuse` makes of the two, from left to right."""
    merged: list[TargetWord] = []
    for word in words:
        if merged and (fused := fuse(merged[-1], word)):
            merged[-1] = fused
        else:
            merged.append(word)
    return merged


def elide(before: TargetWord, word: TargetWord) -> TargetWord | None:
    """Return `l'homme` for `le homme`; the elided word's links become possible only."""
    is_elided = before.text in ELIDED and begins_with_vowel(word.text)
    if not is_elided and not (before.text == "si" and word.text in ("il", "ils")):
        return None
    return TargetWord(f"{before.text[:-1]}'{word.text}", word.sure, before.sure + before.possible + word.possible)


def contract(before: TargetWord, word: TargetWord) -> TargetWord | None:
    """Return `du` for `de le`; the article's links become possible only."""
    fused = CONTRACTED.get((before.text, word.text))
    return TargetWord(fused, before.sure, before.possible + word.sure + word.possible) if fused else None


def fit_articles(english: Sequence[str]) -> list[str]:
    """Return English words, `a` made `an` before a vowel."""
    words = [*english]
    for i, (word, following) in enumerate(pairwise(words)):
        if word == "a" and following[0].lower() in ENGLISH_VOWELS:
            words[i] = "an"
    return words


def _line(texts: Sequence[str]) -> str:
    line = "".join(text if text in PUNCTUATION else f" {text}" for text in texts).strip()
    return line[0].upper() + line[1:]
