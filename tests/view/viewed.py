"""What the view of a sentence pair is given."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nmt.view.alignment import round_weights


def viewed(
    source_words: Sequence[str], target_words: Sequence[str], weights: np.ndarray, **more: Any
) -> dict[str, Any]:
    """Return the data of a pair whose words stand between spaces, unless `more` has other sentences."""
    sentences = {"source": " ".join(source_words), "text": " ".join(target_words)}
    words = {"source_words": list(source_words), "target_words": list(target_words)}
    return {**words, "weights": round_weights(weights), **sentences, **more}
