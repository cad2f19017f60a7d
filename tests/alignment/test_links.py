"""Links of known weights."""

import numpy as np

from nmt.alignment.links import argmax_links, intersection, links_of, threshold_links
from nmt.config.schema import LinksConfig


def test_argmax_links_are_source_target() -> None:
    weights = np.array([[0.1, 0.2, 0.7], [0.6, 0.4, 0.0], [0.0, 0.0, 0.0]])
    assert argmax_links(weights) == {(2, 0), (0, 1)}
    assert argmax_links(np.zeros((0, 0))) == set()
    assert argmax_links(np.zeros((2, 0))) == set()


def test_threshold_links_are_all_that_reach_it() -> None:
    weights = np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.1, 0.0, 0.1]])
    assert threshold_links(weights, 0.3) == {(2, 0), (0, 1), (1, 1), (2, 1)}
    assert threshold_links(weights, 0.71) == set()
    assert threshold_links(np.zeros((0, 0)), 0.1) == threshold_links(np.zeros((2, 0)), 0.1) == set()


def test_a_rule_is_a_method_with_its_threshold() -> None:
    weights = np.array([[0.4, 0.6]])
    assert links_of(weights, LinksConfig()) == links_of(weights, LinksConfig(threshold=0.9)) == {(1, 0)}
    assert links_of(weights, LinksConfig(method="threshold", threshold=0.4)) == {(0, 0), (1, 0)}


def test_the_reverse_direction_has_its_links_the_other_way_round() -> None:
    assert intersection({(0, 1), (1, 0), (2, 2)}, {(1, 0), (2, 2), (0, 2)}) == {(0, 1), (2, 2)}
