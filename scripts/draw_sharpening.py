"""Draw how the attention to a sentence sharpens while a run is trained, as an animated picture."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from nmt.cli import user_errors
from nmt.errors import UserError
from nmt.evaluation.filmstrips import records_by_sentence
from nmt.evaluation.records import ALIGNMENTS, read_records
from nmt.view.heatmap import draw_heatmap, to_array

COLORS = 32  # of the picture; heatmaps have one hue


def draw_frame(record: dict[str, Any], width: int) -> Image.Image:
    """Draw a heatmap of the attention to the reference, with the number of updates above it."""
    words = record["source_words"], record["reference_words"]
    figure = draw_heatmap(np.array(record["reference_weights"]), *words, title=f"update {record['step']:,}")
    return Image.fromarray(to_array(figure, width=width)).quantize(COLORS)


def draw(options: argparse.Namespace) -> None:
    """Write the picture; raise UserError if the run has no such records, or the picture cannot be written."""
    records = records_by_sentence(read_records(Path(options.run) / ALIGNMENTS))
    if not 0 <= options.sentence < len(records):
        raise UserError(f"{options.run}/{ALIGNMENTS} has {len(records)} sentences: there is no {options.sentence}")
    first, *others = [draw_frame(record, options.width) for record in records[options.sentence]]
    durations = [options.milliseconds] * len(others) + [5 * options.milliseconds]
    try:
        first.save(options.output, save_all=True, append_images=others, duration=durations, loop=0, optimize=True)
    except (OSError, ValueError) as error:  # ValueError: no format has this suffix
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise UserError(f"cannot write {options.output}: {reason}") from error


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="folder of a run")
    parser.add_argument("--sentence", type=int, default=0, metavar="N", help="number of the sample (%(default)s)")
    parser.add_argument("--output", default="sharpening.gif", metavar="FILE", help="picture (%(default)s)")
    parser.add_argument("--width", type=int, default=420, metavar="PIXELS", help="of the picture (%(default)s)")
    parser.add_argument("--milliseconds", type=int, default=600, help="for which a frame is seen (%(default)s)")
    with user_errors():
        draw(parser.parse_args())


if __name__ == "__main__":
    main()
