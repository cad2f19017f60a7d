"""TensorBoard: curves, translations, heatmaps and hyper-parameters of a run."""

import contextlib
import logging
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

from tensorboard.compat.proto import summary_pb2
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams, image, scalar, text

from nmt.alignment.weights import Alignment
from nmt.config.schema import TrainConfig, changes
from nmt.evaluation.registry import METRICS
from nmt.translator import Translation

logger = logging.getLogger(__name__)

PICTURE_WIDTH = 350  # pixels that TensorBoard shows; it scales other widths without smoothing, and letters lose strokes
TAG_LENGTH = 70  # characters of a sentence in the name of its pictures

DATA_CLASSES = {
    "scalars": summary_pb2.DATA_CLASS_SCALAR,
    "text": summary_pb2.DATA_CLASS_TENSOR,
    "images": summary_pb2.DATA_CLASS_BLOB_SEQUENCE,
}
ALIGNMENT_DESCRIPTION = (
    "Attention while translating: rows are the words translated to, columns those of the source; each row sums to 1. "
    "Of long sentences the first words of either side are drawn."
)
SAMPLES_DESCRIPTION = (
    "Sentences of the validation text, the translations of the model at this update, and their references."
)
TRAINING_DESCRIPTIONS = {
    "loss": "Mean cross-entropy of a target subword, in nats, without label smoothing, since the last report.",
    "perplexity": "exp(loss).",
    "learning_rate": "Of the last update.",
    "gradient_norm": "Global norm of the gradient of the last update, before clipping.",
    "tokens_per_second": "Target subwords, validations left out.",
    "skipped": "Updates left out since the last report because their gradient was not finite.",
}


class Sample(NamedTuple):
    """A translation of a validation sentence to show, with its reference, and the attention to that."""

    translation: Translation
    reference: str
    forced: Alignment


@final
class TensorBoard:
    """Writes the files that TensorBoard shows."""

    def __init__(self, folder: Path, *, after: int) -> None:
        """Continue the curves after update `after`; TensorBoard hides points of later updates."""
        purge_step = after + 1 if folder.exists() else None
        self.previous_hook, threading.excepthook = threading.excepthook, self.thread_failed
        self.writer: SummaryWriter | None = None
        with self.disabled_on_error():
            self.writer = SummaryWriter(str(folder), purge_step=purge_step)

    @contextlib.contextmanager
    def disabled_on_error(self) -> Iterator[None]:
        """Guard writes for TensorBoard in the block: after an OSError, log a warning and write no more."""
        try:
            yield
        except OSError as error:
            self.writer = None
            reason = error.strerror or error
            logger.warning("the files for TensorBoard cannot be written (%s): the run goes on without them", reason)

    def thread_failed(self, arguments: threading.ExceptHookArgs) -> None:
        """Ignore an OSError of the writer thread: the next call raises it again."""
        if not isinstance(arguments.exc_value, OSError):
            self.previous_hook(arguments)

    def flush(self) -> None:
        """Write all that was added to disk."""
        if self.writer is not None:
            with self.disabled_on_error():
                self.writer.flush()

    def close(self) -> None:
        """Write all that was added to disk, for the last time."""
        if self.writer is not None:
            with self.disabled_on_error():
                self.writer.close()
        threading.excepthook = self.previous_hook

    def scalars(self, group: str, values: Mapping[str, float], step: int) -> None:
        """Add a point to the curve of each value."""
        for name, value in values.items():
            self._add("scalars", scalar(f"{group}/{name}", value), step, describe(group, name))

    def samples(self, samples: Sequence[Sample], step: int) -> None:
        """Add the translations, if there are any, as a table and their attention as pictures; write all to disk."""
        if samples:
            self._add("text", text("samples", as_markdown(samples)), step, SAMPLES_DESCRIPTION)
            self._add_heatmaps(samples, step)
        self.flush()

    def _add_heatmaps(self, samples: Sequence[Sample], step: int) -> None:
        # Imported here because matplotlib takes 30 MiB, which only a process that draws needs.
        from nmt.view.heatmap import LONGEST, draw_heatmap, to_array

        for number, sample in enumerate(samples):
            translation = sample.translation
            source_words, target_words = translation.source_words[:LONGEST], translation.target_words[:LONGEST]
            weights = translation.weights[:LONGEST, :LONGEST]  # a model that has learned little repeats words for ever
            heatmap = draw_heatmap(weights, source_words, target_words)
            pixels = to_array(heatmap, width=PICTURE_WIDTH)
            picture = image(tag_of(number, translation.source), pixels, dataformats="HWC")
            self._add("images", picture, step, ALIGNMENT_DESCRIPTION)

    def _add(self, plugin: str, summary: Any, step: int, description: str) -> None:
        """Add a summary with a description, for which `SummaryWriter.add_scalar` and the like have no argument."""
        for value in summary.value:
            value.metadata.plugin_data.plugin_name = plugin
            value.metadata.data_class = DATA_CLASSES[plugin]  # else the fast loader drops the description
            value.metadata.summary_description = description
        self._write(summary, step)

    def _write(self, summary: Any, step: int | None = None) -> None:
        if self.writer is not None:
            with self.disabled_on_error():
                self.writer.file_writer.add_summary(summary, step)

    def final(self, settings: Mapping[str, float | str], scores: Mapping[str, float], step: int) -> None:
        """Add the hyper-parameters and the scores of the test split.

        `SummaryWriter.add_hparams` is not used because it creates another run beside this one.
        """
        for summary in hparams(dict(settings), {f"test/{name}": value for name, value in scores.items()}):
            self._write(summary)
        self.scalars("test", scores, step)
        self.flush()


def describe(group: str, name: str) -> str:
    """Return the description of a curve."""
    if group == "train":
        return TRAINING_DESCRIPTIONS.get(name, "A term of the objective, a target subword.")
    if name not in METRICS:
        return ""
    metric = METRICS[name]
    note = metric.table_display.note if isinstance(metric.table_display.note, str) else ""
    direction = f"{metric.better} is better" if metric.better else ""
    return ", ".join(dict.fromkeys(filter(None, (metric.table_display.label, note, direction))))


def tag_of(number: int, source: str) -> str:
    """Return the name of a sentence's pictures, which says what they show.

    TensorBoard's data server cannot find pictures whose name has a character that JSON escapes, such as a straight
    quotation mark.
    """
    sentence = source if len(source) <= TAG_LENGTH else source[: TAG_LENGTH - 1] + "…"
    sentence = re.sub(r"[\x00-\x1f\x7f]", " ", sentence.replace('"', "'").replace("\\", "/"))
    return f"alignment/{number}: “{sentence}”"


def hyperparameters(config: TrainConfig) -> dict[str, float | str]:
    """Return what differs from the defaults, as numbers and strings; without paths and settings of the machine."""
    settings: dict[str, float | str] = {"data.kind": config.data.kind}
    for name, (_, value) in changes(TrainConfig(), config).items():
        if not name.startswith(("data.", "run_dir", "resume", "threads", "automatic")):
            settings[name] = value if type(value) in (int, float) else "null" if value is None else str(value)
    return settings


def as_markdown(samples: Sequence[Sample]) -> str:
    """Return a table of sentences, their translations and references side by side."""
    rows = ((sample.translation.source, sample.translation.text, sample.reference) for sample in samples)
    lines = (" | ".join(re.sub(r"([\\`*_<>\[\]|])", r"\\\1", cell) for cell in row) for row in rows)
    return "\n".join(["| source | translation | reference |", "|---|---|---|", *(f"| {line} |" for line in lines)])
