"""Teachers: the runs that translate the training text, each in its direction."""

from collections.abc import Sequence
from dataclasses import dataclass

from nmt.config.file import load_config
from nmt.config.schema import TrainConfig
from nmt.errors import UserError

FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True)
class Teacher:
    """A run, or several that translate together; `config` is that of the first."""

    direction: str
    number: int  # among those of its direction, from 1
    runs: tuple[str, ...]
    config: TrainConfig

    @property
    def name(self) -> str:
        """The direction and the number, as in train.tsv."""
        return f"{self.direction}-{self.number}"

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language of the text: of a forward run its own, of a backward run exchanged."""
        data = self.config.data
        ours, theirs = data.source_language, data.target_language
        return (ours, theirs) if self.direction == FORWARD else (theirs, ours)


def teachers_of(forward: Sequence[str], backward: Sequence[str], *, together: bool) -> list[Teacher]:
    """Return the teachers, one per run, or one per direction where all its runs translate together; raise UserError if
    there is none, a run has no checkpoint, or they are of different languages.
    """
    from nmt.models.checkpoint import CONFIG, find_checkpoint

    teachers = []
    for direction, runs in ((FORWARD, forward), (BACKWARD, backward)):
        groups = [tuple(runs)] if together and runs else [(run,) for run in runs]
        for number, group in enumerate(groups, start=1):
            config = load_config(find_checkpoint(group[0]) / CONFIG)
            teachers.append(Teacher(direction, number, group, config))
    if not teachers:
        raise UserError("there is no run to translate with: give --forward RUN, --backward RUN, or both")
    source, target = teachers[0].languages
    for teacher in teachers:
        if teacher.languages != (source, target):
            wanted = f"{source} to {target}" if teacher.direction == FORWARD else f"{target} to {source}"
            given = f"{teacher.runs[0]} translates {teacher.config.data.direction}"
            first = f"--{teachers[0].direction} {teachers[0].runs[0]}"
            raise UserError(f"{given}: as --{teacher.direction}, beside {first}, it must translate {wanted}")
    return teachers
