"""Lines of any characters: one line out for each line in, and no errors.

The long form, 20,000 lines: `python -m pytest -m chaos tests/chaos/test_lines.py`.
"""

import random
import sys
import unicodedata
from pathlib import Path

import pytest

from tests.processes import Zygote

HOSTILE = [
    "\0",
    "\x1b[2J",
    "\r",
    "\u2028",
    "\u202e",
    "\ufeff",
    "\u200d",
    "\u0301",
    "\U0001f468\u200d\U0001f469",
    " ||| ",
]
HOSTILE += ["\t", "\x0c", "\x85", "\uffff", "\U0010ffff", "{0}", "%s", "</script>", "=1+1", "▁", "<unk>", "<s>", "@@ "]


def random_line(generator: random.Random) -> str:
    """Return a line of letters of one script, of any characters, or of pieces that have harmed other programs."""
    kind, length = generator.randrange(4), generator.randrange(60)
    if kind == 0:
        first = generator.choice([0x20, 0x400, 0x5D0, 0x600, 0x900, 0xE00, 0x3040, 0x4E00, 0xAC00, 0x1F300])
        characters = [chr(first + generator.randrange(96)) for _ in range(length)]
    elif kind == 1:
        characters = [chr(generator.randrange(sys.maxunicode + 1)) for _ in range(length)]
    elif kind == 2:
        characters = [generator.choice([*HOSTILE, "cat ", "the "]) for _ in range(length)]
    else:
        characters = [generator.choice("abc.,! ") for _ in range(length)] + [generator.choice(HOSTILE)]
    return "".join(c for c in characters if unicodedata.category(c[0]) != "Cs").replace("\n", " ")


def check_lines(zygote: Zygote, run: Path, place: Path, number: int, *options: str) -> None:
    generator = random.Random(number)
    lines = [random_line(generator) for _ in range(number)]
    text = "".join(f"{line}\n" for line in lines).encode()
    options = ("--checkpoint", str(run), "--device", "cpu", "--beam-size", "1", *options)
    done = zygote.run("translate", *options, cwd=place, stdin=text, seconds=900)
    assert (done.status, done.has_traceback) == (0, False), done.errors[-2000:]
    assert done.output.count("\n") == number
    assert done.output.endswith("\n")


def test_a_few_hundred_lines(zygote: Zygote, tiny_run: Path, tmp_path: Path) -> None:
    check_lines(zygote, tiny_run, tmp_path, 300)
    check_lines(zygote, tiny_run, tmp_path, 100, "--json")


@pytest.mark.chaos
def test_twenty_thousand_lines(zygote: Zygote, tiny_run: Path, tmp_path: Path) -> None:
    """About two minutes."""
    check_lines(zygote, tiny_run, tmp_path, 20_000, "--alignments", "words")
