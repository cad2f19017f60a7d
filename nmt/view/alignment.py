"""The view of a sentence pair in a browser: hovering a word lights its partners, with heatmaps beside the sentences.

One element, `<nmt-alignment>` of `alignment.js`, used by the page of `nmt.serve`, by `report.html` and in notebooks.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from nmt.alignment.weights import Weights

HERE = Path(__file__).parent
DIGITS = 4  # of a weight


def alignment_html(data: Mapping[str, Any]) -> str:
    """Return the view of `data` as a fragment of HTML that needs nothing beside it, for notebooks.

    `data` is as in `SentencePair.to_dict`; alignment.js lists what else may be in it. All text is escaped. The two
    sentences are shown if scripts do not run.
    """
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string(asset("alignment.html.j2"))
    texts = {"source": data["source"], "text": data["text"]}
    return template.render(data=json.dumps(data), css=asset("alignment.css"), js=asset("alignment.js"), **texts)


@functools.cache
def asset(name: str) -> str:
    """Return the text of `alignment.css` or `alignment.js`."""
    return (HERE / name).read_text(encoding="utf-8")


def round_weights(weights: Weights) -> list[list[float]]:
    """Return weights as rows of numbers with four digits."""
    return np.round(weights.astype(np.float64), DIGITS).tolist()
