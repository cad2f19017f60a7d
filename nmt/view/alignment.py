"""The view of a sentence pair in a browser: hovering a word lights its partners, with heatmaps beside the sentences.

One element, `<nmt-alignment>` of `alignment.js`, used by the page of `nmt.serve`, by `report.html` and in notebooks.
"""

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from jaxtyping import Float

from nmt.alignment.pharaoh import Link, Links

Weights = Float[np.ndarray, "target source"]

HERE = Path(__file__).parent
DIGITS = 4  # of a weight


def view_data(
    source_words: Sequence[str],
    target_words: Sequence[str],
    weights: Weights,
    *,
    source: str | None = None,
    text: str | None = None,
    saliency: Weights | None = None,
    gold: Links | None = None,
) -> dict[str, Any]:
    """Return what the element shows, in JSON's types.

    Args:
        source_words: the columns of the weights.
        target_words: the rows of the weights.
        weights: attention, each between 0 and 1.
        source: the sentence that the source words are parts of, in order; without it they are shown with spaces.
        text: likewise for the target words.
        saliency: a second matrix, drawn beside the attention.
        gold: links to outline.
    """
    assert weights.shape == (len(target_words), len(source_words)), "a row a target word, a column a source word"
    data = {"source_words": list(source_words), "target_words": list(target_words), "weights": rounded(weights)}
    if source is not None:
        data["source"] = source
    if text is not None:
        data["text"] = text
    if saliency is not None:
        data["saliency"] = rounded(saliency)
    if gold is not None:
        data["gold"] = gold_data(gold)
    return data


def gold_data(gold: Links) -> dict[str, list[Link]]:
    """Return links as the element takes them: those that are only possible are dashed."""
    return {"sure": sorted(gold.sure), "possible": sorted(gold.possible - gold.sure)}


def alignment_html(
    source_words: Sequence[str],
    target_words: Sequence[str],
    weights: Weights,
    *,
    source: str | None = None,
    text: str | None = None,
    saliency: Weights | None = None,
    gold: Links | None = None,
) -> str:
    """Return the view as a fragment of HTML that needs nothing beside it, for notebooks; arguments as `view_data`.

    All text is escaped. Where scripts do not run, the two sentences are shown.
    """
    data = view_data(source_words, target_words, weights, source=source, text=text, saliency=saliency, gold=gold)
    shown = {"source": source or " ".join(source_words), "text": text or " ".join(target_words)}
    return _template().render(data=json.dumps(data), css=asset("alignment.css"), js=asset("alignment.js"), **shown)


@functools.cache
def asset(name: str) -> str:
    """Return the text of `alignment.css` or `alignment.js`."""
    return (HERE / name).read_text(encoding="utf-8")


def rounded(weights: Weights) -> list[list[float]]:
    """Return weights as rows of numbers with four digits."""
    return np.round(weights.astype(np.float64), DIGITS).tolist()


@functools.cache
def _template() -> jinja2.Template:
    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(asset("alignment.html.j2"))
