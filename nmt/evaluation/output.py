"""The files of an evaluation: metrics.json, hypotheses.txt, alignments.pharaoh, report.html, heatmaps/."""

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nmt.alignment.pharaoh import Link, Links, format_pharaoh, format_words
from nmt.alignment.recut import split_links
from nmt.alignment.weights import Alignment
from nmt.data.tables import temporary_folder
from nmt.errors import write_errors
from nmt.evaluation.registry import Values
from nmt.evaluation.report import Drawing, Sentence, hundredths, render_report
from nmt.translator import Translation
from nmt.view.heatmap import LONGEST, draw_heatmap, save_png
from nmt.view.text_heatmap import render_svg

INTERSECTION = "alignments.intersection.pharaoh"
HEATMAPS = "heatmaps"
LONGEST_VIEW = 120  # words of either side, in the views that rows of the report open


class Evidence(NamedTuple):
    """How the words of each sentence are aligned."""

    attention: Sequence[Translation]
    saliency: Sequence[Alignment] | None  # of the translations, where it was asked for
    links: Sequence[set[Link]]  # of the attention
    confirmed: Sequence[set[Link]] | None  # those of `links` that a translator of the other direction finds too
    gold: Sequence[Links] | None  # links of the references


def prepare_folder(folder: Path) -> None:
    """Create the folder, before the work begins, or raise UserError."""
    with write_errors(f"the evaluation to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)


def write(folder: Path, metrics: Values, rows: Sequence[Sentence], evidence: Evidence, num_heatmaps: int) -> None:
    """Write every file into a temporary folder first, then move each into place, metrics.json last.

    The temporary folder is inside `folder`: its parent may be on another disk, or not writable.

    Raises:
        UserError: they cannot be written; `folder` is unchanged, or has only some of the new files.
    """
    with write_errors(f"the evaluation to {folder}"), temporary_folder(folder / "metrics.json") as staging:
        drawings = draw(staging / HEATMAPS, rows, evidence, pick(evidence.attention, num_heatmaps))
        title = f"Evaluation on {metrics['split']}"
        page = render_report(metrics, rows, drawings, title=title, alignments=views_of(rows, evidence))
        files = {"alignments.pharaoh": lines(map(format_pharaoh, evidence.links))}
        files["alignments.words"] = lines(
            format_words(each.source_words, each.target_words) for each in evidence.attention
        )
        if evidence.confirmed is not None:
            files[INTERSECTION] = lines(map(format_pharaoh, evidence.confirmed))
        files["hypotheses.txt"] = lines(row.hypothesis for row in rows)
        files["report.html"] = page
        files["metrics.json"] = json.dumps(metrics, indent=2, allow_nan=False) + "\n"
        for name, text in files.items():
            (staging / name).write_text(text, encoding="utf-8")
        shutil.rmtree(folder / HEATMAPS, ignore_errors=True)
        (folder / INTERSECTION).unlink(missing_ok=True)
        for name in (HEATMAPS, *files):
            (staging / name).replace(folder / name)


def pick(translations: Sequence[Translation], count: int) -> list[int]:
    """Choose sentences to draw: evenly spread over the lengths that a heatmap can show, the same every time."""
    sizes = [each.weights.shape for each in translations]
    drawable = [i for i, shape in enumerate(sizes) if min(shape) > 0 and max(shape) <= LONGEST]
    drawable.sort(key=lambda i: len(translations[i].source_words))
    spread = np.linspace(0, len(drawable) - 1, min(count, len(drawable))).round().astype(int)
    return [drawable[i] for i in spread]


def draw(folder: Path, rows: Sequence[Sentence], evidence: Evidence, chosen: Sequence[int]) -> list[Drawing]:
    """Write a PNG for each chosen sentence, named by its line, and return the drawings for the report.

    Gold is outlined where the translation is the reference, whose parts between spaces gold links join.
    """
    folder.mkdir()
    drawings = []
    for index in chosen:
        row, translation = rows[index], evidence.attention[index]
        words = translation.source_words, translation.target_words
        panels = {"attention": translation.weights}
        if evidence.saliency is not None:
            panels["saliency"] = evidence.saliency[index].weights
        outlined = outlined_gold(row, evidence, index)
        figure = draw_heatmap(panels, *words, title=f"line {row.number}", gold=outlined)
        save_png(figure, folder / f"{row.number:05d}.png")
        pictures = {name: render_svg(weights, *words, gold=outlined) for name, weights in panels.items()}
        drawings.append(Drawing(row, pictures))
    return drawings


def outlined_gold(row: Sentence, evidence: Evidence, index: int) -> Links | None:
    """Return the gold links of a translation that is the reference; None of any other."""
    words = evidence.attention[index].source_words, evidence.attention[index].target_words
    return split_links(evidence.gold[index], *words, row.source, row.reference) if evidence.gold else None


def views_of(rows: Sequence[Sentence], evidence: Evidence) -> dict[int, Values]:
    """Return the data of the view that each row of the report opens, by its number."""
    found: dict[int, Values] = {}
    for index, (row, translation) in enumerate(zip(rows, evidence.attention, strict=True)):
        if min(translation.weights.shape) > 0 and max(translation.weights.shape) <= LONGEST_VIEW:
            saliency = evidence.saliency[index] if evidence.saliency is not None else None
            found[row.number] = hundredths(translation, saliency, outlined_gold(row, evidence, index))
    return found


def lines(texts: Iterable[str]) -> str:
    """Join lines, each ended by a newline."""
    return "".join(f"{text}\n" for text in texts)
