import html
import json
import re

import numpy as np

from nmt.view.alignment import alignment_html, asset
from tests.view.viewed import viewed

SOURCE, TARGET = ["a", "<b>", "c"], ['"d"', "</script><script>alert(1)</script>"]
WEIGHTS = np.array([[0.25, 0.75, 0.0], [1 / 3, 1 / 3, 1 / 3]])


def test_fragment_needs_nothing_beside_it_and_escapes_all_text() -> None:
    fragment = alignment_html(viewed(SOURCE, TARGET, WEIGHTS))
    assert fragment.count("<script>") == 1
    assert "<b>" not in fragment
    assert not re.search(r"@import|url\(|src=|href=", fragment)
    (found,) = re.findall(r'data="([^"]*)"', fragment)
    assert json.loads(html.unescape(found)) == viewed(SOURCE, TARGET, WEIGHTS)


def test_control_characters_and_lone_surrogates_survive_as_data() -> None:
    words = ["\x00\r\n", "\ud800", "\u2028"]
    fragment = alignment_html(viewed(words, ["x"], np.ones((1, 3)) / 3, source="a", text="b"))
    (found,) = re.findall(r'data="([^"]*)"', fragment)
    assert json.loads(html.unescape(found))["source_words"] == words
    assert "\x00" not in fragment


def test_assets_can_stand_inside_a_page() -> None:
    assert not re.search("</(script|style)", asset("alignment.js") + asset("alignment.css"))
    assert not re.search(r"https?:|@import|url\(", asset("alignment.js") + asset("alignment.css"))
