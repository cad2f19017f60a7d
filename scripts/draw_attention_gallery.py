"""The gallery of docs/attention.md: the attention of every score, normalizer and window to one sentence.

    python scripts/draw_attention_gallery.py [--runs outputs/study_attention_standard/runs] [--run NAME=RUN ...]

The runs are those of scripts/study_attention.py. Each score is shown with softmax and the global window, and each
normalizer and window with the additive score. --run adds any other run of the same languages, such as one with guided
alignment. The sentence is of the validation split and its translation is given, so that all pictures have the same
words. Writes small pictures to docs/attention/ and the section between the marks of docs/attention.md; members without
a run are left out and named on standard error.
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from nmt.cli import user_errors
from nmt.errors import UserError
from study_alignment import Crossing, find_crossing
from study_attention import quick_compositions

PAGE = Path(__file__).resolve().parents[1] / "docs" / "attention.md"
BEGIN, END = "<!-- gallery: drawn by scripts/draw_attention_gallery.py -->", "<!-- end of gallery -->"
COLUMNS = 3
PIXELS = 330  # width of a picture
COLORS = 24


class Member(NamedTuple):
    """The name and the run of a picture."""

    name: str
    run: Path


def main() -> None:
    """Draw all members that have a run."""
    options = build_parser().parse_args()
    with user_errors():
        names = ["-".join(composition) for composition in quick_compositions()]
        members = [*(Member(name, options.runs / name) for name in names), *map(parse_member, options.run)]
        trained = [member for member in members if (member.run / "checkpoints").is_dir()]
        for member in members:
            if member not in trained:
                print(f"no run of {member.name} at {member.run}", file=sys.stderr)
        if not trained:
            raise UserError(
                f"no runs in {options.runs}: make some with scripts/study_attention.py --standard, or give --runs DIR"
            )
        write_gallery(trained, options.page)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("outputs/study_attention_standard/runs"), metavar="DIR")
    parser.add_argument("--run", action="append", default=[], metavar="NAME=RUN", help="one more picture")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="F", help="where the section is (docs/attention.md)")
    return parser


def parse_member(text: str) -> Member:
    """Read NAME=RUN; raise UserError for another form."""
    name, equals, run = text.partition("=")
    if not equals or not name.replace("-", "").replace("_", "").isalnum():
        raise UserError(f"--run {text}: write NAME=RUN, the name of letters, digits, - and _")
    return Member(name, Path(run))


def write_gallery(members: list[Member], page: Path) -> None:
    """Draw the members, and put them into the page between the marks; raise UserError if the page has no marks."""
    from nmt.models.checkpoint import load_checkpoint

    if not page.is_file():
        raise UserError(f"there is no page {page}: give one with a place for the gallery")
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(END) < text.index(BEGIN):
        raise UserError(f"{page} has no place for the gallery: a line {BEGIN!r} and, after it, a line {END!r}")
    pair = find_crossing(load_checkpoint(members[0].run).config.data)
    folder = page.with_suffix("")
    folder.mkdir(exist_ok=True)
    for member in members:
        draw(member, pair, folder / f"{member.name}.png")
    before, _, rest = text.partition(BEGIN)
    section = gallery(members, pair, folder.name)
    page.write_text(f"{before}{BEGIN}\n\n{section}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    print(f"{len(members)} pictures in {folder}")


def gallery(members: list[Member], pair: Crossing, folder: str) -> str:
    """Return the text of the section: the sentence, and a table of pictures."""
    lines = [f"*{pair.source}* is translated as *{pair.target}*; gold links are outlined in orange.", ""]
    lines += ["| " * COLUMNS + "|", "|---" * COLUMNS + "|"]
    cells = [f"`{member.name}`<br>![{member.name}]({folder}/{member.name}.png)" for member in members]
    cells += [""] * (-len(cells) % COLUMNS)
    lines += [f"| {' | '.join(cells[i : i + COLUMNS])} |" for i in range(0, len(cells), COLUMNS)]
    return "\n".join(lines) + "\n"


def draw(member: Member, pair: Crossing, path: Path) -> None:
    """Draw a picture of a few kilobytes: PIXELS wide, in COLORS colors."""
    from PIL import Image

    from nmt.translator import Translator
    from nmt.view.heatmap import draw_heatmap, to_array

    (alignment,) = Translator.load(member.run).align([pair.source], [pair.target])
    figure = draw_heatmap(alignment.weights, pair.source.split(), pair.target.split(), gold=pair.gold)
    Image.fromarray(to_array(figure, width=PIXELS)).quantize(COLORS).save(path, optimize=True)


if __name__ == "__main__":
    main()
