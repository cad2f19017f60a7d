"""The view of a sentence pair in a browser: hovering a word lights its partners, with heatmaps beside the sentences.

One element, `<nmt-alignment>` of `alignment.js`, used by the page of `nmt.serve`, by `report.html` and in notebooks.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from nmt.alignment.weights import Weights


def alignment_html(data: Mapping[str, Any]) -> str:
    """Return the view of `data` as a fragment of HTML that needs nothing beside it, for notebooks.

    `data` is as in `SentencePair.to_dict`; alignment.js lists what else may be in it. All text is escaped. The two
    sentences are shown if scripts do not run.
    """
    template = jinja2.Template(asset("alignment.html.j2"), autoescape=True, undefined=jinja2.StrictUndefined)
    assets = {"css": asset("alignment.css"), "js": asset("alignment.js")}
    return template.render(source=data["source"], text=data["text"], data=json.dumps(data), **assets)


def asset(name: str) -> str:
    """Return the text of a file of this folder."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def round_weights(weights: Weights) -> list[list[float]]:
    """Return weights as rows of numbers with four digits."""
    return np.round(weights.astype(np.float64), 4).tolist()
