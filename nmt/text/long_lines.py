"""Lines too long to translate at once, cut at punctuation or spaces, and the texts of such parts put together."""

import re
import unicodedata
from collections.abc import Callable, Sequence

from nmt.text.words import SPACELESS, is_abbreviation

CUT_FACTOR = 2  # a line with more than this many times the subwords of the longest training sentence is cut

# Where a line is cut, the best first; a mark of East Asia, Arabic, India, Khmer or Burmese needs no space after it.
BOUNDARIES = (
    re.compile(r"(?<![.!?…۔։])[.!?…۔։]++[\"'”’»)\]]*\s+|[。！？｡؟।॥።។៕။]+[”’」』）]*\s*"),  # the end of a sentence
    re.compile(r"[,;:–—)\]]\s+|[、，；：،؛၊།]\s*"),
    re.compile(r"\s+"),
)
WORD = re.compile(r"\S*")


def split_line(line: str, size: Callable[[str], int], longest: int | None) -> list[str]:
    """Cut a line of more than `CUT_FACTOR` times `longest` subwords into parts; any other line is the only part.

    Parts are sentences, as most training pairs are: a model trained on single sentences translates the first of several
    and stops. Sentences of more than `longest` subwords are cut further, down to single characters. Takes
    O(n log n) time for a line of n characters. `size` returns the number of subwords of a text, `longest` is that of
    the longest sentence that was trained on; if it is None, lines are never cut.
    """
    # Almost every subword has at least one byte, so most lines need not be segmented to decide this.
    if longest is None or len(line.encode()) <= CUT_FACTOR * longest or size(line) <= CUT_FACTOR * longest:
        return [line]
    parts = [part for sentence in sentences(line) for part in halved(sentence, size, longest)]
    return parts or [""]  # white space alone may have subwords, too


def sentences(line: str) -> list[str]:
    """Cut a line behind each mark that ends a sentence, but for the period of an abbreviation."""
    sentences, begin = [], 0
    for mark in BOUNDARIES[0].finditer(line):
        # No other mark needs the word after it, which is all of the line where there are no spaces.
        if mark.group().rstrip() != "." or not is_abbreviated(line, begin, mark):
            sentences.append(line[begin : mark.end()].strip())
            begin = mark.end()
    return [each for each in (*sentences, line[begin:].strip()) if each]


def is_abbreviated(line: str, begin: int, mark: re.Match[str]) -> bool:
    """Return whether a period belongs to the word before it; what is before `begin` is not read."""
    before, after = last_word(line, begin, mark.start()), WORD.match(line, mark.end())
    return before != "" and is_abbreviation(before, after.group() if after else "")


def last_word(line: str, begin: int, end: int) -> str:
    """Return the last word of a part of a line; what is before it is not read."""
    while end > begin and line[end - 1].isspace():
        end -= 1
    start = end
    while start > begin and not line[start - 1].isspace():
        start -= 1
    return line[start:end]


def halved(line: str, size: Callable[[str], int], longest: int) -> list[str]:
    """Cut a line near its middle, and the halves again, until each has at most `longest` subwords."""
    if len(line) < 2 or size(line) <= longest:
        return [line]
    place = cut_near_middle(line)
    halves = (line[:place].strip(), line[place:].strip())
    return [part for half in halves if half for part in halved(half, size, longest)]


def cut_near_middle(line: str) -> int:
    """Return where to cut: at the best boundary in the middle half of the line, there nearest to its middle."""
    middle, quarter = len(line) // 2, len(line) // 4
    for boundary in BOUNDARIES:
        boundaries = boundary.finditer(line, quarter, len(line) - quarter)
        if ends := [each.end() for each in boundaries if each.end() < len(line)]:
            return min(ends, key=lambda end: abs(end - middle))
    joined = ("Mn", "Mc", "Me", "Cf")  # marks belong to the letter before them
    return next((n for n in range(middle, len(line)) if unicodedata.category(line[n]) not in joined), middle)


def join_texts(texts: Sequence[str]) -> str:
    """Join texts with a space between them, or none where both sides of it are of a script without spaces."""
    joined = ""
    for text in filter(None, texts):
        is_spaceless = not joined or (SPACELESS.match(joined[-1]) and SPACELESS.match(text[0]))
        joined += text if is_spaceless else f" {text}"
    return joined
