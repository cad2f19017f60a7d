"""TensorBoard's view of a run: curves, translations, heatmaps and hyper-parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from jaxtyping import Float
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from nmt.config.schema import TrainConfig, keys

PICTURE_WIDTH = 350  # pixels that TensorBoard shows; it scales other widths without smoothing, and letters lose strokes


@dataclass(frozen=True)
class Sample:
    """A validation sentence as it is shown: its translation, and the attention over words."""

    source: str
    reference: str
    hypothesis: str
    weights: Float[np.ndarray, "target source"]
    source_words: list[str]
    target_words: list[str]


@final
class Board:
    """TensorBoard's view of the run."""

    def __init__(self, folder: Path, *, after: int) -> None:
        """Curves go on after an update; TensorBoard hides what is there of later ones."""
        self.writer = SummaryWriter(str(folder), purge_step=after + 1 if folder.exists() else None)

    def scalars(self, group: str, values: Mapping[str, float], step: int) -> None:
        """Add a point to the curve of each value."""
        for name, value in values.items():
            self.writer.add_scalar(f"{group}/{name}", value, step)

    def samples(self, samples: Sequence[Sample], step: int) -> None:
        """Add the translations as text and their attention as pictures."""
        # Not before: drawing takes 30 MiB, which no process but the one that reports needs.
        from nmt.evaluation.heatmap import draw_heatmap, to_array

        for number, sample in enumerate(samples):
            self.writer.add_text(f"samples/{number}", as_markdown(sample), step)
            heatmap = draw_heatmap(sample.weights, sample.source_words, sample.target_words)
            pixels = to_array(heatmap, width=PICTURE_WIDTH)
            self.writer.add_image(f"alignment/{number}", pixels, step, dataformats="HWC")
        self.writer.flush()

    def final(self, settings: Mapping[str, float | str], scores: Mapping[str, float], step: int) -> None:
        """Add the hyper-parameters with the scores they led to.

        Not with `add_hparams`, which makes a run of its own beside this one.
        """
        named = {f"test/{name}": value for name, value in scores.items()}
        for summary in hparams(dict(settings), named):
            self.writer.file_writer.add_summary(summary)
        self.scalars("test", scores, step)
        self.writer.flush()

    def close(self) -> None:
        """Write what is left."""
        self.writer.close()


def hyperparameters(config: TrainConfig) -> dict[str, float | str]:
    """Return the keys that may change a score, as TensorBoard's table of hyper-parameters takes them."""
    found: dict[str, float | str] = {"data.kind": config.data.kind}
    for name, _, value in keys(config):
        if value is not None and not name.startswith(("data.", "run_dir", "resume", "threads")):
            found[name] = value if type(value) in (int, float) else str(value)
    return found


def as_markdown(sample: Sample) -> str:
    """Return the sentence, its translation and its reference as a table."""
    rows = (("source", sample.source), ("translation", sample.hypothesis), ("reference", sample.reference))
    head, *lines = (f"| {name} | {text.replace('|', chr(92) + '|')} |" for name, text in rows)
    return "\n".join([head, "|---|---|", *lines])
