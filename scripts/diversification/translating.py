"""Translations of a text by a teacher, kept in a file that is named by all they depend on, and continued if unfinished.

The text is translated in chunks of `CHUNK` lines, each written at once; what does not fill a chunk is translated again.
So batches hold the same sentences whether or not a call was interrupted, and the results are the same.
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from diversification.teachers import Teacher
from diversification.text import Text
from nmt.config.schema import LARGEST_SEED
from nmt.errors import UserError, write_errors
from studies.runs import cached
from studies.study import log

if TYPE_CHECKING:
    from nmt.translator import Translation, Translator

CHUNK = 512  # lines: a few seconds; smaller ones have fewer sentences of similar length
SECONDS = 5.0  # between two messages


@dataclass(frozen=True)
class Search:
    """How teachers translate: `settings` as `Translator.load` takes them, `sampling` as `Translator.sample`."""

    device: str
    precision: str
    n_best: int
    settings: dict[str, Any]
    sampling: dict[str, Any] | None

    def of(self, number: int) -> dict[str, Any] | None:
        """Return the settings of sampling of a teacher; with the same seed, like models would draw like samples."""
        if self.sampling is None:
            return None
        return {**self.sampling, "seed": (self.sampling["seed"] + number) % (LARGEST_SEED + 1)}


@dataclass(frozen=True)
class Part:
    """A teacher's translations of each sentence, best first or as drawn, and what is known of them."""

    teacher: Teacher
    translations: Sequence[Sequence[str]]
    facts: dict[str, Any]


class Progress:
    """Messages on how far the work is, over all teachers."""

    def __init__(self, total: int) -> None:
        self.left = total
        self.done = 0
        self.started = self.told = time.monotonic()

    def skip(self, lines: int) -> None:
        """Leave out lines that have been translated before."""
        self.left -= lines

    def add(self, lines: int, name: str, place: str) -> None:
        """Count lines; tell the speed and the time that is left, but not too often."""
        from nmt.formats import duration

        self.left, self.done, now = self.left - lines, self.done + lines, time.monotonic()
        if now - self.told >= SECONDS or not self.left:
            speed, self.told = self.done / (now - self.started), now
            log(f"{name}: {place}, {speed:,.0f} sentences/s, {duration(self.left / speed)} left in all")


def translate(teacher: Teacher, number: int, text: Text, search: Search, folder: Path, progress: Progress) -> Part:
    """Return the translations of a teacher, the `number`-th of all, made unless they are in `folder`; raise UserError
    where the teacher cannot be loaded, the settings do not fit it, or the folder cannot be written.
    """
    from nmt.evaluation.baseline import corpus_digest

    sources, references = text.sides(teacher.direction)
    translator = load(teacher, search)
    sampling, line_of = search.of(number), form(translator, references)
    settings = {
        "checkpoints": [checkpoint_digest(each) for each in folders_of(translator)],
        "text": corpus_digest(sources, references),
        "precision": search.precision,
        "search": vars(translator.search),
        "sampling": sampling,
        "n_best": search.n_best,
        "chunk": CHUNK,
    }
    name = f"{teacher.direction}-{hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]}"
    path = folder / f"{name}.txt"
    if path.is_file():
        progress.skip(len(sources))
    else:
        fill(path, teacher.name, sources, translating(translator, search.n_best, sampling, line_of), progress)
    translations = [line.split("\t") for line in path.read_bytes().decode().split("\n")[:-1]]
    assert len(translations) == len(sources), f"{path} is not whole"

    def facts() -> dict[str, Any]:
        best = [n_best[0] for n_best in translations]
        return {"step": translator.step, **settings, **score(teacher, translator, best, references)}

    return Part(teacher, translations, cached(path.with_suffix(".json"), facts))


def load(teacher: Teacher, search: Search) -> "Translator":
    """Load the models of a teacher."""
    from nmt.translator import Translator

    first, *others = teacher.runs
    return Translator.load(first, search.device, search.precision, ensemble=others, **search.settings)


def folders_of(translator: "Translator") -> list[Path]:
    """Return the checkpoints of a translator."""
    assert translator.checkpoint is not None
    return [translator.checkpoint, *translator.ensemble]


def checkpoint_digest(folder: Path) -> str:
    """Return a digest of what a checkpoint translates with: weights, configuration and subwords."""
    from nmt.models.checkpoint import CONFIG, SUBWORDS, WEIGHTS

    digest = hashlib.sha256()
    for name in (CONFIG, WEIGHTS, *SUBWORDS):
        if (folder / name).is_file():
            digest.update(f"{name} ".encode() + (folder / name).read_bytes())
    return digest.hexdigest()[:16]


def form(translator: "Translator", references: Sequence[str]) -> Callable[["Translation"], str]:
    """Return a function that writes a translation in the format of the training text.

    Subword models write text as they read it, tokenized or not. For text that is pre-segmented into subwords,
    translations are written as pieces.
    """
    from nmt.text.vocabulary import Vocabulary

    words = [" ".join(line.split()) for line in references]
    if isinstance(translator.tokenizers.target, Vocabulary) and translator.detokenize(references) != words:
        translator.replaces_unknown = False  # a copy is a word, not a piece
        return lambda each: " ".join(each.pieces)
    return lambda each: each.line.replace("\t", " ")


def translating(
    translator: "Translator",
    n_best: int,
    sampling: dict[str, Any] | None,
    line_of: Callable[["Translation"], str],
) -> Callable[[Sequence[str]], list[str]]:
    """Return a function from sentences to lines: the translations of a sentence, separated by tabs."""
    translator.with_alignment = False

    def lines(sentences: Sequence[str]) -> list[str]:
        if sampling is None:
            translations = translator.translate_n_best(sentences, n_best)
        else:
            translations = translator.sample(sentences, n_best, **sampling)
        return ["\t".join(map(line_of, each)) for each in translations]

    return lines


def fill(
    path: Path, name: str, sources: Sequence[str], work: Callable[[Sequence[str]], list[str]], progress: Progress
) -> None:
    """Write a file of the results of `work`, a line for each source, or what is left of it."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    with opened(unfinished) as file:
        done = keep_chunks(file)
        progress.skip(done)
        for start in range(done, len(sources), CHUNK):
            chunk = sources[start : start + CHUNK]
            file.write("".join(f"{line}\n" for line in work(chunk)).encode())
            file.flush()
            progress.add(len(chunk), name, f"{start + len(chunk):,} of {len(sources):,}")
    unfinished.replace(path)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file to read and append; raise UserError if another process has it open so, or it cannot be written."""
    import fcntl

    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is writing {path}: wait for it, or give another --output") from None
        yield file


def keep_chunks(file: BinaryIO) -> int:
    """Cut a file off after its last whole chunk; return the number of lines that it keeps."""
    file.seek(0)
    lines = file.read().split(b"\n")[:-1]
    kept = len(lines) // CHUNK * CHUNK
    file.truncate(sum(len(line) + 1 for line in lines[:kept]))
    file.seek(0, 2)
    return kept


def score(
    teacher: Teacher, translator: "Translator", translations: Sequence[str], references: Sequence[str]
) -> dict[str, Any]:
    """Return the BLEU of translations of training text, and its signature."""
    from nmt.evaluation.metrics import bleu, bleu_tokenizer, corpus_score

    metric = bleu(bleu_tokenizer(teacher.config), teacher.config.lowercase)
    bleu_score = corpus_score(metric, translator.detokenize(translations), translator.detokenize(references))
    return {"bleu": bleu_score.value, "signature": bleu_score.signature}
