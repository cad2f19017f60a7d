"""Filmstrips: how the alignment of a sentence sharpens in the course of training."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from nmt.view.heatmap import LONGEST, draw_heatmap, to_array

Record = dict[str, Any]  # a line of a run's alignments.jsonl
Pixels = UInt8[np.ndarray, "_ _ 3"]

FRAMES = 6  # of a strip
WIDTH = 1_600  # pixels of a strip, where its letters stay legible
GAP = 12  # pixels between strips


def write_filmstrips(records: Iterable[Record], picture: Path) -> None:
    """Draw the attention to the references at a few updates, one strip per sentence; nothing if there are none."""
    strips = [draw_strip(frames) for frames in records_by_sentence(records) if len(frames) > 1]
    if strips:
        picture.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(stack_pictures(strips)).save(picture)


def records_by_sentence(records: Iterable[Record]) -> list[list[Record]]:
    """Return the records of each sentence in the order of updates, without those that cannot be drawn."""
    ordered = sorted(filter(is_drawable, records), key=lambda record: (sentence_key(record), record["step"]))
    return [list(group) for _, group in itertools.groupby(ordered, key=sentence_key)]


def sentence_key(record: Record) -> tuple[int, list[str], list[str]]:
    """Return what the records of a sentence have in common."""
    return record["sample"], record["source_words"], record["reference_words"]


def is_drawable(record: Record) -> bool:
    """Return whether a record has attention to a reference, with a weight for each pair of words."""
    try:
        number, source, reference = sentence_key(record)
        weights = np.array(record["reference_weights"], dtype=float)
        are_words = all(isinstance(word, str) for word in (*source, *reference))
    except (KeyError, TypeError, ValueError):  # a damaged line that is JSON still
        return False
    is_placed = isinstance(number, int) and isinstance(record["step"], int) and record["step"] > 0
    is_legible = weights.size > 0 and max(weights.shape) <= LONGEST
    return is_placed and are_words and is_legible and weights.shape == (len(reference), len(source))


def draw_strip(frames: Sequence[Record]) -> Pixels:
    """Draw heatmaps of a sentence side by side, at updates about equally far apart in their logarithm."""
    steps = np.array([frame["step"] for frame in frames])
    wanted = np.geomspace(steps[0], steps[-1], FRAMES)
    chosen = sorted({int(np.abs(np.log(steps) - np.log(step)).argmin()) for step in wanted})
    panels = {f"update {frames[n]['step']:,}": np.array(frames[n]["reference_weights"]) for n in chosen}
    return to_array(draw_heatmap(panels, frames[0]["source_words"], frames[0]["reference_words"]), width=WIDTH)


def stack_pictures(pictures: Sequence[Pixels]) -> Pixels:
    """Put pictures below each other, on white."""
    width = max(picture.shape[1] for picture in pictures)
    return np.concatenate(
        [np.pad(x, ((0, GAP), (0, width - x.shape[1]), (0, 0)), constant_values=255) for x in pictures]
    )
