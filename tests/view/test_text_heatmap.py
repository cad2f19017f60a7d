"""The heatmap in the terminal."""

import numpy as np
import pytest

from nmt.view.text_heatmap import render_text


@pytest.mark.parametrize("character", ["\x1b", "\0", "\r", "\u202e", "\u2066", "\u2069"])
def test_no_label_reaches_the_terminal_with_what_changes_it(character: str) -> None:
    for source, target in ((f"a{character}b", "c"), ("c", f"a{character}b")):
        shown = render_text(np.ones((1, 1)), [source], [target])
        assert character not in shown
        assert "\N{REPLACEMENT CHARACTER}" in shown
    assert "می\u200cخواهم" in render_text(np.ones((1, 1)), ["c"], ["می\u200cخواهم"])  # a joiner is spelling
