"""The heatmap in the terminal."""

import numpy as np
import pytest

from nmt.view.heatmap import draw_heatmap
from nmt.view.text_heatmap import is_right_to_left, render_text


@pytest.mark.parametrize("character", ["\x1b", "\0", "\r", "\u202e", "\u2066", "\u2069"])
def test_no_label_reaches_the_terminal_with_what_changes_it(character: str) -> None:
    for source, target in ((f"a{character}b", "c"), ("c", f"a{character}b")):
        shown = render_text(np.ones((1, 1)), [source], [target])
        assert character not in shown
        assert "\N{REPLACEMENT CHARACTER}" in shown
    assert "می\u200cخواهم" in render_text(np.ones((1, 1)), ["c"], ["می\u200cخواهم"])  # a joiner is spelling


def test_columns_that_do_not_fit_go_on_below() -> None:
    shown = render_text(np.eye(3), ["a", "bc", "d"], ["x", "y", "z"], width=6)  # a label, a space and two columns
    assert shown.split("\n\n") == ["    b\n  a c\nx ██\ny   ██\nz", "  d\nx\ny\nz ██"]
    assert render_text(np.eye(3), ["a", "bc", "d"], ["x", "y", "z"], width=8).count("\n\n") == 0
    assert render_text(np.eye(2), ["a", "b"], ["x", "y"], width=1).count("\n\n") == 1  # never without a column


@pytest.mark.parametrize(("mark", "is_reversed"), [("\u200f", True), ("\u061c", True), ("\u200e", False), ("", False)])
def test_a_mark_of_direction_counts_as_a_letter(mark: str, is_reversed: bool) -> None:
    assert is_right_to_left([f"{mark}HTML", "שלום"]) is is_reversed
    assert is_right_to_left([f"{mark}שלום", "HTML"]) is (mark != "\u200e")


def test_columns_run_as_the_source_is_read() -> None:
    words, weights = ["«", "שלום", "עולם"], np.array([[0.0, 1.0, 0.0]])
    assert render_text(weights, words, ["x"]).splitlines()[-1] == "x   ██"
    weights = np.array([[1.0, 0.0, 0.0]])
    assert render_text(weights, words, ["x"]).splitlines()[-1] == "x     ██"
    assert draw_heatmap(weights, words, ["x"]).axes[0].get_xlim() == (2.5, -0.5)
    assert draw_heatmap(weights, ["a", "b", "c"], ["x"]).axes[0].get_xlim() == (-0.5, 2.5)
