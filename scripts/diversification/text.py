"""The training text that teachers translate."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from diversification.teachers import FORWARD, Teacher
from nmt.config.schema import SplitConfig
from nmt.errors import UserError
from nmt.translate import is_same_file
from studies.study import log


@dataclass(frozen=True)
class Text:
    """Pairs of sentences; `lines` are their line numbers in the text, from 1, as cleaning leaves some out.

    `files` are those that it was read from, where they hold plain text.
    """

    languages: tuple[str, str]
    sources: Sequence[str]
    targets: Sequence[str]
    lines: Sequence[int]
    files: Sequence[Path] = ()

    @property
    def suffixes(self) -> tuple[str, str]:
        """The endings of the files of its sides: the languages, unless they are the same."""
        return self.languages if len(set(self.languages)) == 2 else ("source", "target")

    def sides(self, direction: str) -> tuple[Sequence[str], Sequence[str]]:
        """Return what teachers of a direction read, and what they should write."""
        return (self.sources, self.targets) if direction == FORWARD else (self.targets, self.sources)


def check_output(text: Text, folder: Path) -> None:
    """Raise UserError if the text to be written would replace that which it is made of."""
    for suffix in text.suffixes:
        if any(is_same_file(folder / f"train.{suffix}", file) for file in text.files):
            raise UserError(f"{folder / f'train.{suffix}'} is the text that is translated: give another --output")


def load_text(teacher: Teacher, source: str | None, target: str | None) -> Text:
    """Return the training text of a teacher, or that of two files, cleaned as for the teacher's training; raise
    UserError where it cannot be read.
    """
    from nmt.data.corpus import clean, load_split

    config, is_own = teacher.config.data, source is None
    if not is_own:
        config = replace(config, kind="text", train=SplitConfig(source=source, target=target))
    table = load_split(config, "train")
    table, report = clean(table.add_column("line", list(range(1, len(table) + 1))), config.cleaning)
    log(f"training text: {report}")
    is_exchanged = is_own and teacher.direction != FORWARD
    first, second = ("target", "source") if is_exchanged else ("source", "target")
    # Sentences have no line feed, but may have a carriage return: at the end it would be taken for a part of the break.
    sources, targets = ([sentence.replace("\r", " ") for sentence in table[side]] for side in (first, second))
    sides = (config.train.source, config.train.target) if config.kind == "text" else ()
    files = [Path(file).expanduser() for side in sides for file in ([side] if isinstance(side, str) else side or ())]
    return Text(teacher.languages, sources, targets, list(table["line"]), files)
