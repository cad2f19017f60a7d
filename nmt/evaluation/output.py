"""The files of an evaluation: metrics.json, hypotheses.txt, alignments.pharaoh, report.html, heatmaps/."""

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nmt.alignment.pharaoh import Link, Links, format_pharaoh, format_words
from nmt.alignment.retokenization import split_links
from nmt.alignment.weights import Alignment
from nmt.data.tables import temporary_folder
from nmt.errors import write_errors
from nmt.evaluation.registry import Values
from nmt.evaluation.report import Sentence, alignment_data, render_report
from nmt.translator import Translation
from nmt.view.heatmap import LONGEST, draw_heatmap, save_png

METRICS_FILE = "metrics.json"
INTERSECTION = "alignments.intersection.pharaoh"
HEATMAPS = "heatmaps"
LONGEST_VIEW = 120  # words of either side, in the views that rows of the report open


class AlignedSentence(NamedTuple):
    """A row of the table of sentences, and how the words of its translation are aligned."""

    row: Sentence
    translation: Translation
    links: set[Link]  # of its attention
    saliency: Alignment | None  # where it was asked for and is known
    agreed: set[Link] | None  # those of `links` that a translator of the other direction finds too
    gold: Links | None  # of the reference

    def gold_of_translation(self) -> Links | None:
        """Return the gold links of a translation that is the reference; None of any other."""
        if self.gold is None:
            return None
        words = self.translation.source_words, self.translation.target_words
        return split_links(self.gold, *words, self.row.source, self.row.reference)


def prepare_folder(folder: Path) -> None:
    """Create the folder, before the work begins, or raise UserError."""
    with write_errors(f"the evaluation to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)


def write_files(folder: Path, metrics: Values, sentences: Sequence[AlignedSentence], num_heatmaps: int) -> None:
    """Write every file into a temporary folder first, then move each into place, metrics.json last; raise UserError if
    they cannot be written: `folder` is unchanged then, or has only some of the new files.

    The temporary folder is inside `folder`: its parent may be on another disk, or not writable.
    """
    with write_errors(f"the evaluation to {folder}"), temporary_folder(folder / METRICS_FILE) as staging:
        drawn = [sentences[index] for index in pick([each.translation for each in sentences], num_heatmaps)]
        draw_heatmaps(staging / HEATMAPS, drawn)
        rows, title = [each.row for each in sentences], f"Evaluation on {metrics['split']}"
        words = ((each.translation.source_words, each.translation.target_words) for each in sentences)
        alignments = {
            each.row.number: alignment_data(each.translation, each.saliency, each.gold_of_translation())
            for each in sentences
            if min(each.translation.weights.shape) > 0 and max(each.translation.weights.shape) <= LONGEST_VIEW
        }
        files = {
            "alignments.pharaoh": lines(format_pharaoh(each.links) for each in sentences),
            "alignments.words": lines(format_words(*sides) for sides in words),
            "hypotheses.txt": lines(row.hypothesis for row in rows),
            "report.html": render_report(
                metrics, rows, [each.row for each in drawn], title=title, alignments=alignments
            ),
        }
        agreed = [each.agreed for each in sentences if each.agreed is not None]
        if agreed:
            files[INTERSECTION] = lines(map(format_pharaoh, agreed))
        files[METRICS_FILE] = json.dumps(metrics, indent=2, allow_nan=False) + "\n"
        for name, text in files.items():
            (staging / name).write_text(text, encoding="utf-8")
        shutil.rmtree(folder / HEATMAPS, ignore_errors=True)
        (folder / INTERSECTION).unlink(missing_ok=True)
        for name in (HEATMAPS, *files):
            (staging / name).replace(folder / name)


def pick(translations: Sequence[Translation], count: int) -> list[int]:
    """Choose sentences to draw: evenly spread over the lengths that a heatmap can show, the same every time."""
    sizes = [translation.weights.shape for translation in translations]
    drawable = [i for i, size in enumerate(sizes) if min(size) > 0 and max(size) <= LONGEST]
    drawable.sort(key=lambda i: len(translations[i].source_words))
    chosen = np.linspace(0, len(drawable) - 1, min(count, len(drawable))).round().astype(int)
    return [drawable[i] for i in chosen]


def draw_heatmaps(folder: Path, sentences: Sequence[AlignedSentence]) -> None:
    """Write a PNG for each sentence, named by its line; gold is outlined where the translation is the reference."""
    folder.mkdir()
    for sentence in sentences:
        translation, name = sentence.translation, f"{sentence.row.number:05d}.png"
        panels = {"attention": translation.weights}
        if sentence.saliency is not None:
            panels["saliency"] = sentence.saliency.weights
        words, title = (translation.source_words, translation.target_words), f"line {sentence.row.number}"
        save_png(draw_heatmap(panels, *words, title=title, gold=sentence.gold_of_translation()), folder / name)


def lines(texts: Iterable[str]) -> str:
    """Join lines, each ended by a newline."""
    return "".join(f"{text}\n" for text in texts)
