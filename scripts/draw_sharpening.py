"""Draw how the attention to a sentence sharpens while a run is trained, as an animated picture."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from nmt.cli import user_errors
from nmt.data.tables import temporary_folder
from nmt.errors import UserError, write_errors
from nmt.evaluation.filmstrips import records_by_sentence
from nmt.evaluation.records import ALIGNMENTS, read_records
from nmt.view.heatmap import draw_heatmap, to_array
from studies.options import positive

COLORS = 32  # of the picture; heatmaps have one hue
MAX_MILLISECONDS = 10 * 65_535 // 5  # a GIF counts hundredths of a second in 16 bits


def draw_frame(record: dict[str, Any], width: int) -> Image.Image:
    """Draw a heatmap of the attention to the reference, with the number of updates above it."""
    words = record["source_words"], record["reference_words"]
    figure = draw_heatmap(np.array(record["reference_weights"]), *words, title=f"update {record['step']:,}")
    return Image.fromarray(to_array(figure, width=width)).quantize(COLORS)


def draw(options: argparse.Namespace) -> None:
    """Write the picture; raise UserError if the run has no such records, or the picture cannot be written.

    The last frame is seen five times as long as the others.
    """
    output = Path(options.output)
    if Image.registered_extensions().get(output.suffix.lower()) not in Image.SAVE_ALL:
        raise UserError(f"{output.name} names no format of animated pictures: write a .gif, .png or .webp")
    if options.milliseconds > MAX_MILLISECONDS:
        raise UserError(f"--milliseconds {options.milliseconds} is more than a picture can hold: {MAX_MILLISECONDS:,}")
    records = records_by_sentence(read_records(Path(options.run) / ALIGNMENTS))
    if not 0 <= options.sentence < len(records):
        raise UserError(f"{options.run}/{ALIGNMENTS} has {len(records)} sentences: there is no {options.sentence}")
    first, *others = [draw_frame(record, options.width) for record in records[options.sentence]]
    durations = [options.milliseconds] * len(others) + [5 * options.milliseconds]
    with write_errors(output), temporary_folder(output) as staging:
        drawn = staging / output.name
        first.save(drawn, save_all=True, append_images=others, duration=durations, loop=0, optimize=True)
        drawn.replace(output)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="folder of a run")
    parser.add_argument("--sentence", type=int, default=0, metavar="N", help="number of the sample (%(default)s)")
    parser.add_argument("--output", default="sharpening.gif", metavar="FILE", help="picture (%(default)s)")
    parser.add_argument("--width", type=positive, default=420, metavar="PIXELS", help="of the picture (%(default)s)")
    parser.add_argument("--milliseconds", type=positive, default=600, help="for which a frame is seen (%(default)s)")
    with user_errors():
        draw(parser.parse_args())


if __name__ == "__main__":
    main()
