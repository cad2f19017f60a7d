"""Words as aligners count them: punctuation is apart, and scripts without spaces are cut into characters.

The characters of a line decide, not the name of its language, because lines mix scripts.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence

# Scripts that are written without spaces between words, and the punctuation marks of East Asia.
EAST_ASIAN_SCRIPTS = (
    "\u2e80-\u2fdf\u3001-\u312f\u31a0-\u9fff\uf900-\ufaff\ufe30-\ufe4f\U00020000-\U0003ffff"  # Chinese, Japanese
    "\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff9f"  # wide punctuation, narrow katakana
)
SPACELESS_SCRIPTS = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u0f00-\u0fff"  # Tibetan
    "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f"  # Myanmar
    "\u1780-\u17ff\u19e0-\u19ff"  # Khmer
    f"{EAST_ASIAN_SCRIPTS}"
)
SPACELESS = re.compile(f"[{SPACELESS_SCRIPTS}]")
EAST_ASIAN = re.compile(f"[{EAST_ASIAN_SCRIPTS}]")
JOINS_NEXT = frozenset("เแโใไເແໂໃໄ\u17d2\u1039")  # vowels written before their consonant, signs that stack the next one
JOINS_LAST = frozenset("\u0e33\u0eb3")  # vowels that are letters in Unicode, but marks to the eye

INNER_PUNCTUATION = re.compile("—+|―+|…+")  # marks that part words inside, too
PARTS_OF_WORDS = frozenset("'’-‐‑_#@&׳״")  # l', rock-, C#, rive@@: not apart at the edge of a word
APOSTROPHES = frozenset("'‘’")
ENTITY = re.compile("&#?\\w+;$")
ORDINAL = re.compile("\\d\\.$")
BRACKETS = {")": "(", "]": "["}
LONGEST_ABBREVIATION = 3  # letters of a capitalized word before a period: Dr., Mrs., St.


def text_words(line: str) -> list[str]:
    """Return the words of a line: parts between spaces, with punctuation apart, and characters in spaceless scripts."""
    return [line[start:end] for start, end in word_spans(line)]


def word_spans(line: str) -> list[tuple[int, int]]:
    """Return the beginning and the end of each of `text_words` in the line."""
    cuts = sorted(cuts_of(line))
    return [(a, b) for a, b in itertools.pairwise(cuts) if not line[a:b].isspace()]


def plain_words(line: str) -> list[str]:
    """Return the parts between the spaces of a line; of one that holds a spaceless script, `text_words`."""
    return text_words(line) if SPACELESS.search(line) else line.split()


def with_spaces(line: str) -> str:
    """Put spaces between the `text_words` of Thai and similar scripts; East Asian and other lines are unchanged."""
    return " ".join(text_words(line)) if SPACELESS.search(line) and not EAST_ASIAN.search(line) else line


def is_spaceless(lines: Sequence[str]) -> bool:
    """Return whether most lines hold a character of a script without spaces."""
    return 2 * sum(SPACELESS.search(line) is not None for line in lines) > len(lines)


def cuts_of(line: str) -> set[int]:
    """Return every position at which a word begins or ends.

    Punctuation is not separated in a line that has been tokenized already: one with a period or comma between spaces,
    or a lowercased one that ends in an ordinal number, whose period German tokenizers keep. A period stays with an
    abbreviation: `U.S.`, and inside a line `Dr.`, or any word before a lowercase letter.
    """
    cuts: set[int] = set()
    chunks = list(re.finditer(r"\S+", line))
    is_tokenized = any(chunk.group() in (".", ",") for chunk in chunks) or bool(ORDINAL.search(line) and line.islower())
    for chunk, after in itertools.zip_longest(chunks, chunks[1:]):
        text, start, follower = chunk.group(), chunk.start(), after.group() if after else ""
        runs = [0, *character_cuts(text), len(text)] if SPACELESS.search(text) else [0, len(text)]
        cuts.update(start + position for position in runs)
        if not is_tokenized and not text.isalnum():
            for begin, end in itertools.pairwise(runs):
                cuts.update(start + begin + position for position in punctuation_cuts(text[begin:end], follower))
    return cuts


def character_cuts(text: str) -> Iterator[int]:
    """Yield the positions between two characters of which one is spaceless; combining marks stay with their letter."""
    for position, (left, right) in enumerate(itertools.pairwise(text), start=1):
        is_mark = unicodedata.category(right)[0] == "M" or unicodedata.category(right) == "Cf" or right in JOINS_LAST
        if not is_mark and left not in JOINS_NEXT and (SPACELESS.match(left) or SPACELESS.match(right)):
            yield position


def characters_of(word: str) -> list[str]:
    """Cut a word at each character of East Asia, where a character is a word or a part of one that means something."""
    cuts = [each for each in character_cuts(word) if EAST_ASIAN.search(word[each - 1 : each + 1])]
    return [word[start:end] for start, end in itertools.pairwise([0, *cuts, len(word)])]


def punctuation_cuts(text: str, follower: str) -> Iterator[int]:
    """Yield the positions around the marks at the edges of a word, and around dashes in it; `...` is one mark."""
    first, last = (0, len(text)) if ENTITY.search(text) else edges(text)
    if text[last : last + 2] == "." and is_abbreviation(text[first:last], follower):
        last += 1
    for position in range(1, len(text)):
        in_edge = position <= first or position >= last
        if in_edge and (position in (first, last) or text[position] != text[position - 1]):
            yield position
    for dash in INNER_PUNCTUATION.finditer(text, first, last):
        yield from dash.span()


def edges(text: str) -> tuple[int, int]:
    """Return where a word begins and ends between the punctuation marks around it."""
    first, last = 0, len(text)
    while first < last and is_apart(text[first]) and not (text[first] == "." and text[first + 1 : first + 2].isalnum()):
        first += 1
    while (
        last > first and is_apart(text[last - 1]) and BRACKETS.get(text[last - 1], "\0") not in text[first : last - 1]
    ):
        last -= 1
    is_quoted = last - first > 2 and text[first] in APOSTROPHES and text[last - 1] in APOSTROPHES
    return (first + 1, last - 1) if is_quoted else (first, last)


def is_apart(character: str) -> bool:
    """Return whether a character at the edge of a word is a word of its own."""
    return unicodedata.category(character)[0] == "P" and character not in PARTS_OF_WORDS


def is_abbreviation(word: str, follower: str) -> bool:
    """Return whether the period behind a word belongs to it; `follower` is the word that comes next, or empty."""
    if "." in word or (len(word) == 1 and word.isalpha()):
        return True
    is_title = len(word) <= LONGEST_ABBREVIATION and (word[:1].isupper() or word.isdigit())
    return follower != "" and (is_title or follower[0].islower())


def cut_words(words: Sequence[str], word_of_piece: Sequence[int], ends: Sequence[int]) -> tuple[list[str], list[int]]:
    """Cut words between spaces as `cuts_of` says, where a piece ends; return these, and the index of each piece's word.

    `ends` counts the characters of its word that are read when a piece ends. No piece is divided: what a model reads as
    one symbol has one weight.
    """
    allowed = cuts_of(" ".join(words))
    starts = list(itertools.accumulate((len(word) + 1 for word in words), initial=0))
    new_words: list[str] = []
    new_word_of_piece: list[int] = []
    begin = 0  # of the open word, within the word between spaces
    for piece, (owner, end) in enumerate(zip(word_of_piece, ends, strict=True)):
        new_word_of_piece.append(len(new_words))
        is_last = piece + 1 == len(ends) or word_of_piece[piece + 1] != owner
        if is_last or (begin < end < len(words[owner]) and starts[owner] + end in allowed):
            word = words[owner][begin : None if is_last else end]
            if word.isspace() and not is_last:  # white space other than " " belongs to the word behind it
                continue
            new_words.append(word.strip() or word)
            begin = 0 if is_last else end
    return new_words, new_word_of_piece
