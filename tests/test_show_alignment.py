"""`python -m nmt.translate --show-alignment` on a terminal."""

import os
import subprocess
import sys

import pytest

from tests.runs import ROOT

ATTENTION = """
from types import SimpleNamespace
import numpy as np
from nmt.translate import show_attention
words = list("abcdefghi")
shown = SimpleNamespace(source_words=words, target_words=words, weights=np.eye(9))
show_attention(shown, 1, SimpleNamespace(show_alignment=True, heatmap=None))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudoterminals")
def test_a_picture_is_as_wide_as_the_terminal_that_shows_it() -> None:
    """That of standard error, wherever standard output goes."""
    import pty
    import termios

    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, 12))  # a label, a space and five columns of two cells
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    subprocess.run(
        [sys.executable, "-c", ATTENTION],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**environment, "TERM": "xterm"},
        cwd=ROOT,
    )
    lines = os.read(ours, 100_000).decode().splitlines()
    assert len(lines) == 2 * (1 + 9) + 1
    assert max(map(len, lines)) == 12
