import html
import json
import re

import numpy as np
import pytest

from nmt.alignment.pharaoh import Links
from nmt.view.alignment import alignment_html, asset, view_data

SOURCE, TARGET = ["a", "<b>", "c"], ['"d"', "</script><script>alert(1)</script>"]
WEIGHTS = np.array([[0.25, 0.75, 0.0], [1 / 3, 1 / 3, 1 / 3]])


def test_data_are_those_of_the_pair() -> None:
    gold = Links(frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)}))
    data = view_data(SOURCE, TARGET, WEIGHTS, text="d", saliency=WEIGHTS[::-1], gold=gold)
    assert data == {
        "source_words": SOURCE,
        "target_words": TARGET,
        "weights": [[0.25, 0.75, 0.0], [0.3333, 0.3333, 0.3333]],
        "text": "d",
        "saliency": [[0.3333, 0.3333, 0.3333], [0.25, 0.75, 0.0]],
        "gold": {"sure": [(0, 0)], "possible": [(1, 1)]},
    }


def test_a_matrix_of_another_shape_is_refused() -> None:
    with pytest.raises(AssertionError, match="a row a target word"):
        view_data(SOURCE, TARGET, WEIGHTS.T)


def test_fragment_needs_nothing_beside_it_and_escapes_all_text() -> None:
    fragment = alignment_html(SOURCE, TARGET, WEIGHTS)
    assert fragment.count("<script>") == 1
    assert "<b>" not in fragment
    assert not re.search(r"@import|url\(|src=|href=", fragment)
    (found,) = re.findall(r'data="([^"]*)"', fragment)
    assert json.loads(html.unescape(found)) == view_data(SOURCE, TARGET, WEIGHTS)


def test_control_characters_and_lone_surrogates_survive_as_data() -> None:
    words = ["\x00\r\n", "\ud800", "\u2028"]
    fragment = alignment_html(words, ["x"], np.ones((1, 3)) / 3, source="a", text="b")
    (found,) = re.findall(r'data="([^"]*)"', fragment)
    assert json.loads(html.unescape(found))["source_words"] == words
    assert "\x00" not in fragment


def test_assets_can_stand_inside_a_page() -> None:
    assert not re.search("</(script|style)", asset("alignment.js") + asset("alignment.css"))
    assert not re.search(r"https?:|@import|url\(", asset("alignment.js") + asset("alignment.css"))
