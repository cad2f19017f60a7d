"""TensorBoard: curves, translations, heatmaps and hyper-parameters of a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, final

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from nmt.config.schema import TrainConfig, keys
from nmt.translator import Translation

PICTURE_WIDTH = 350  # pixels that TensorBoard shows; it scales other widths without smoothing, and letters lose strokes


class Sample(NamedTuple):
    """A translation of a validation sentence to show, with its reference."""

    translation: Translation
    reference: str


@final
class Board:
    """Writes the run for TensorBoard."""

    def __init__(self, folder: Path, *, after: int) -> None:
        """Continue the curves after update `after`; TensorBoard hides points of later updates."""
        self.writer = SummaryWriter(str(folder), purge_step=after + 1 if folder.exists() else None)

    def scalars(self, group: str, values: Mapping[str, float], step: int) -> None:
        """Add a point to the curve of each value."""
        for name, value in values.items():
            self.writer.add_scalar(f"{group}/{name}", value, step)

    def samples(self, samples: Sequence[Sample], step: int) -> None:
        """Add the translations as text and their attention as pictures."""
        # Imported here because matplotlib takes 30 MiB, which only the process that reports needs.
        from nmt.view.heatmap import draw_heatmap, to_array

        for number, sample in enumerate(samples):
            self.writer.add_text(f"samples/{number}", as_markdown(sample), step)
            shown = sample.translation
            heatmap = draw_heatmap(shown.weights, shown.source_words, shown.target_words)
            pixels = to_array(heatmap, width=PICTURE_WIDTH)
            self.writer.add_image(f"alignment/{number}", pixels, step, dataformats="HWC")
        self.writer.flush()

    def final(self, settings: Mapping[str, float | str], scores: Mapping[str, float], step: int) -> None:
        """Add the hyper-parameters and the scores of the test split.

        `SummaryWriter.add_hparams` is not used because it creates another run beside this one.
        """
        named = {f"test/{name}": value for name, value in scores.items()}
        for summary in hparams(dict(settings), named):
            self.writer.file_writer.add_summary(summary)
        self.scalars("test", scores, step)
        self.writer.flush()


def hyperparameters(config: TrainConfig) -> dict[str, float | str]:
    """Return the configuration without paths and machine settings, as numbers and strings for TensorBoard."""
    found: dict[str, float | str] = {"data.kind": config.data.kind}
    for name, _, value in keys(config):
        if value is not None and not name.startswith(("data.", "run_dir", "resume", "threads")):
            found[name] = value if type(value) in (int, float) else str(value)
    return found


def as_markdown(sample: Sample) -> str:
    """Return the sentence, its translation and its reference as a table."""
    rows = (
        ("source", sample.translation.source),
        ("translation", sample.translation.text),
        ("reference", sample.reference),
    )
    head, *lines = (f"| {name} | {text.replace('|', chr(92) + '|')} |" for name, text in rows)
    return "\n".join([head, "|---|---|", *lines])
