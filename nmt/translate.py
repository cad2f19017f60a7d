"""Translate sentences: `python -m nmt.translate [TEXT ...]`, or lines from a file or standard input.

One output line for every input line, in order; only translations on standard output.
"""

import argparse
import codecs
import contextlib
import ctypes
import dataclasses
import functools
import gzip
import io
import json
import os
import re
import shutil
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from nmt.alignment.pharaoh import format_words
from nmt.cli import Parser, user_errors
from nmt.config.check import check
from nmt.config.schema import PRECISIONS, UNITS, WORDS, SamplingConfig, SearchConfig
from nmt.errors import UserError, write_errors
from nmt.formats import GZIP_MAGIC, utf16_advice

if TYPE_CHECKING:
    from nmt.evaluation.neighbors import Neighbor
    from nmt.translator import Translation, Translator

    Neighbors = list[tuple[str, list[Neighbor]]]  # of each subword

# How much is translated together: enough to batch sentences of similar length. The limits in characters bound memory;
# the first chunks are smaller, so that the first output appears soon.
CHUNK = 1_024  # lines
FIRST_CHARACTERS, CHARACTERS = 16_000, 128_000
NUMBERS_SHOWN = 10  # of lines, in a notice
MOST_DRAWN = 300  # words of either side in a heatmap, which then is 9,300 pixels wide and takes 350 MB


def at_least(kind: Callable[[str], Any], bound: int) -> Callable[[str], Any]:
    """Return an argparse type for numbers of a kind from `bound` upwards."""

    def parse_number(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number ({kind.__name__})") from None
        if not value >= bound:
            raise argparse.ArgumentTypeError(f"must be at least {bound}, not {text}")
        return value

    return parse_number


COUNT, FACTOR = at_least(int, 1), at_least(float, 0)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line; it does not import torch, so that --help is instant."""
    parser = Parser(prog="python -m nmt.translate", description=(__doc__ or "").partition("\n\n")[0])
    add = parser.add_argument
    add("text", nargs="*", metavar="TEXT", help="sentences to translate (default: lines of --input)")
    run_help = "run or checkpoint folder, or hub:USER/NAME[@REVISION] (%(default)s)"
    add("--checkpoint", default="outputs/latest", metavar="DIR", help=run_help)
    ensemble_help = "a further run, to translate together with the checkpoint; may be given again"
    add("--ensemble", action="append", default=[], metavar="DIR", help=ensemble_help)
    add("--input", metavar="FILE", help="file of sentences, one per line (default: standard input)")
    add("--output", metavar="FILE", help="where translations go (default: standard output)")
    add("--beam-size", type=COUNT, metavar="N", help="hypotheses kept; 1 is greedy (default: the run's)")
    add("--length-penalty", type=FACTOR, metavar="X", help="score = log p / length^X (default: the run's)")
    add("--coverage-penalty", type=FACTOR, metavar="X", help="weight of coverage, beams only (default: the run's)")
    add("--patience", type=FACTOR, metavar="X", help="end with X x beam hypotheses; inf: exact (default: the run's)")
    add("--max-length-ratio", type=FACTOR, metavar="X", help="most subwords = X x source's + N (default: the run's)")
    add("--max-length-offset", type=COUNT, metavar="N", help="see --max-length-ratio (default: the run's)")
    neighbors_help = "mix the N nearest words of the datastore into each prediction (`nmt.datastore`; default: none)"
    add("--neighbors", type=at_least(int, 0), metavar="N", help=neighbors_help)
    add("--neighbor-weight", type=FACTOR, metavar="W", help="their share of the prediction, below 1 (as the run)")
    add("--neighbor-temperature", type=FACTOR, metavar="T", help="the lower, the more the nearest count (as the run)")
    unknown_help = "replace each unknown word by the source word with the most attention (default: as in the run)"
    add("--replace-unknown", action=argparse.BooleanOptionalAction, help=unknown_help)
    add("--n-best", type=COUNT, default=1, metavar="N", help="translations per line, separated by tabs")
    add_sampling(parser)
    add("--batch-size", type=COUNT, metavar="N", help="size of what is searched together (as the run)")
    add("--batch-unit", choices=UNITS, help="what --batch-size counts (as the run)")
    add("--device", default="auto", choices=("auto", "cpu", "cuda"), help="where to translate (%(default)s)")
    add("--precision", default="fp32", choices=PRECISIONS, help="of the products; int8 is for a CPU (%(default)s)")
    verify_help = "verify the checkpoint's digests, about a second per gigabyte"
    add("--verify", action=argparse.BooleanOptionalAction, default=True, help=verify_help)
    formats = [name for name in FORMATS if name]
    add("--alignments", choices=formats, help="add ` ||| ` and: links; all weights; words and links")
    words_help = (
        "words of alignments: `split` separates punctuation and, in scripts without spaces, characters (or pieces); "
        "`spaces` splits at spaces only"
    )
    add("--words", default="split", choices=WORDS, help=f"{words_help} (%(default)s)")
    add("--show-alignment", action="store_true", help="draw the attention of each sentence on standard error")
    shown_help = "print the datastore's places nearest to each subword, on standard error or in the object of --json"
    add("--show-neighbors", action="store_true", help=shown_help)
    add("--heatmap", metavar="DIR", help="write the attention of each sentence as DIR/LINE.png")
    add("--json", action="store_true", help="one JSON object per line: text, score, words, weights, n_best")
    return parser


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Add --sample and its options."""
    group = parser.add_argument_group("sampling (nmt/search/sampling.py)")
    add = group.add_argument
    add("--sample", action="store_true", help="draw translations at random instead of searching: --n-best of them")
    add("--temperature", type=FACTOR, metavar="T", help="draw tokens from p^(1/T); 0 is greedy (1)")
    add("--top-k", type=COUNT, metavar="K", help="draw among the K most probable tokens (all)")
    add("--top-p", type=FACTOR, metavar="P", help="draw among the fewest tokens of this share (1)")
    add("--seed", type=at_least(int, 0), metavar="N", help="the same seed and sentence give the same samples (1)")


def sampling_of(options: argparse.Namespace) -> dict[str, Any] | None:
    """Return the settings of `Translator.sample` given by the options of `add_sampling`, or None for search; raise
    UserError if a setting is out of range, or options of sampling and of searching are mixed.
    """
    settings = {field.name: getattr(options, field.name) for field in dataclasses.fields(SamplingConfig)}
    if not options.sample:
        for name, value in settings.items():
            if value is not None:
                raise UserError(f"--{name.replace('_', '-')} is an option of sampling: add --sample")
        return None
    for name in ("beam_size", "coverage_penalty", "patience"):
        if getattr(options, name, None) is not None:
            raise UserError(f"--{name.replace('_', '-')} is an option of searching, and --sample draws: leave one out")
    config = SamplingConfig(**{name: value for name, value in settings.items() if value is not None})
    check(config)
    return dataclasses.asdict(config)


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    with user_errors():
        run(parse_arguments(arguments))


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the options; `checkpoint=RUN`, the spelling of `nmt.evaluate`, is accepted as well. Raise UserError for a
    text that looks like another setting of `nmt.evaluate` and does not come after `--`.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if "--" in arguments:
        return build_parser().parse_args(arguments)
    options = build_parser().parse_intermixed_args(arguments)  # texts may come before and after options
    names = vars(options).keys() - {"text"}
    for text in tuple(options.text):
        setting = re.fullmatch(r"(?:search\.)?([a-z_]+)=\S*", text)
        if text.startswith("checkpoint="):
            options.checkpoint = text.removeprefix("checkpoint=")
            options.text.remove(text)
        elif setting and setting[1] in names:
            option = f"--{setting[1].replace('_', '-')}"
            raise UserError(f"{text} looks like a setting: write {option}, or put -- before what is to be translated")
    return options


def run(options: argparse.Namespace) -> None:
    """Translate as the options say."""
    if options.text and options.input:
        raise UserError("both TEXT and --input are given: choose one")
    if options.input and options.output and is_same_file(Path(options.input), Path(options.output)):
        raise UserError(f"--input and --output are both {options.input}: give the translations a file of their own")
    sampling = sampling_of(options)
    with contextlib.ExitStack() as stack:
        lines = iter(options.text or read_lines(*open_input(options.input, stack)))
        translator = load_translator(options)
        from nmt.evaluation.neighbors import NO_NEIGHBORS, neighbors_of, neighbors_text  # imports torch

        if options.show_neighbors and translator.datastore is None:
            raise UserError(NO_NEIGHBORS)
        shown = (options.alignments, options.json, options.show_alignment, options.heatmap)
        translator.with_alignment = any(shown)
        translate: Callable[[list[str], int], list[list[Translation]]] = translator.translate_n_best
        if sampling is not None:
            translate = functools.partial(translator.sample, **sampling)
        stack.enter_context(write_errors(options.output or "standard output"))
        output = open_output(options.output, stack)
        number = 0
        size = CHUNK if options.text or options.input or not sys.stdin.isatty() else 1
        for chunk in chunks(lines, size):
            best = {}
            for n_best in translate(chunk, options.n_best):
                number += 1
                neighbors = neighbors_of(translator, n_best[0]) if options.show_neighbors else None
                print(render(n_best, options, neighbors), file=output)
                show_attention(n_best[0], number, options)
                if neighbors and not options.json:
                    print(neighbors_text(neighbors), file=sys.stderr)
                best[number] = n_best[0]
            output.flush()
            print_notices(best, with_alignment=translator.with_alignment, with_heatmap=bool(options.heatmap))
            free_memory()


def chunks(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    """Yield chunks of at most `size` lines and a bounded number of characters; a longer line is its own chunk."""
    chunk: list[str] = []
    room = limit = FIRST_CHARACTERS
    for line in lines:
        if chunk and len(line) > room:
            yield chunk
            chunk, limit = [], min(2 * limit, CHARACTERS)
            room = limit
        chunk.append(line)
        room -= len(line)
        if len(chunk) == size:
            yield chunk
            chunk, room = [], limit
    if chunk:
        yield chunk


def free_memory() -> None:
    """Return unused memory to the system, where the C library is glibc: otherwise the process would keep growing."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def print_notices(translations: "dict[int, Translation]", *, with_alignment: bool, with_heatmap: bool) -> None:
    """Print on standard error the numbers of lines that were translated in parts, cut short, or left without a view."""
    notices: dict[str, Callable[[Translation], bool]] = {
        "far longer than what the model was trained on, translated in parts": lambda each: each.parts > 1,
        "cut at the longest length allowed, see --max-length-ratio": lambda each: each.cut,
        "too long for words and weights, only its text is given": lambda each: with_alignment and each.is_unaligned,
        f"more than {MOST_DRAWN} words, no heatmap is drawn": lambda each: with_heatmap and not is_drawable(each),
    }
    for notice, applies in notices.items():
        if lines := [number for number, translation in translations.items() if applies(translation)]:
            more = f" and {len(lines) - NUMBERS_SHOWN} more" if len(lines) > NUMBERS_SHOWN else ""
            numbers = ", ".join(map(str, lines[:NUMBERS_SHOWN]))
            print(f"notice: line{'s'[: len(lines) > 1]} {numbers}{more}: {notice}", file=sys.stderr)


def is_drawable(translation: "Translation") -> bool:
    """Return whether a heatmap of the translation is small enough to be drawn: its pixels grow with the square."""
    return max(translation.weights.shape) <= MOST_DRAWN


def is_same_file(first: Path, second: Path) -> bool:
    """Return whether two paths are the same regular file, which writing would empty before it is read."""
    return first.is_file() and second.is_file() and first.samefile(second)


def load_translator(options: argparse.Namespace) -> "Translator":
    """Load the translator; torch is imported only here, after the options are checked."""
    from nmt.translator import Translator

    return Translator.load(
        options.checkpoint,
        options.device,
        options.precision,
        ensemble=options.ensemble,
        words=options.words,
        verify=options.verify,
        **{field.name: getattr(options, field.name) for field in dataclasses.fields(SearchConfig)},
    )


def open_input(path: str | None, stack: contextlib.ExitStack) -> tuple[Iterable[bytes], str]:
    """Return the input, unpacked if it is a gzipped file, and its name."""
    if path is None:
        if sys.stdin is None:
            raise UserError("standard input is closed: give TEXT or --input FILE")
        return sys.stdin.buffer, "standard input"
    try:
        file = stack.enter_context(Path(path).open("rb"))  # noqa: SIM115, the stack closes it
        begin = file.peek(2)[:2]
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if path.endswith(".gz") and not begin:
        raise UserError(f"{path} is not a readable gzip file (it is empty): write it again")
    return gzip.GzipFile(fileobj=file) if begin == GZIP_MAGIC else file, path


def open_output(path: str | None, stack: contextlib.ExitStack) -> TextIO:
    """Return the output, in UTF-8 regardless of the locale."""
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        return sys.stdout
    target = Path(path)
    try:
        if target.exists() and not target.is_file():  # a pipe or a device is written to as it is
            return stack.enter_context(target.open("w", encoding="utf-8", newline="\n"))
        return stack.enter_context(replace_together(target.resolve()))[0]  # a link stays a link
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


@contextlib.contextmanager
def replace_together(*paths: Path) -> Iterator[list[TextIO]]:
    """Open temporary files that replace `paths` when the block succeeds; after an error `paths` are unchanged."""
    unfinished = [path.with_name(f".{path.name}.{os.getpid()}.unfinished") for path in paths]
    try:
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in unfinished]
    except BaseException:
        for path in unfinished:
            path.unlink(missing_ok=True)
        raise
    for written, path in zip(unfinished, paths, strict=True):
        if path.exists():
            shutil.copymode(path, written)
        written.replace(path)


def read_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    r"""Yield lines, split on \n only; raise UserError for one that is not UTF-8, or cannot be read.

    A byte order mark before the first is left out, as in training.
    """
    head = b""
    try:
        for number, line in enumerate(file, start=1):
            head = (head + line[:4])[:4]  # the first line may be a newline alone
            if advice := utf16_advice(head):
                raise UserError(f"{name} is {advice}")
            text = line.removeprefix(codecs.BOM_UTF8 if number == 1 else b"")
            yield text.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{name} line {number} is not UTF-8 at byte {error.start + 1}: convert it first") from error
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from error


def render(n_best: "list[Translation]", options: argparse.Namespace, neighbors: "Neighbors | None" = None) -> str:
    """Return the output line of an input line: its best translations, best first, as JSON with the best's neighbors."""
    if options.json:
        best = n_best[0].to_dict()
        if neighbors is not None:
            best["neighbors"] = [
                {"piece": piece, "places": [dataclasses.asdict(place) for place in places]}
                for piece, places in neighbors
            ]
        if options.n_best > 1:
            best["n_best"] = [each.to_dict() for each in n_best]
        return json.dumps(best, ensure_ascii=False)
    return "\t".join(each.line.replace("\t", " ") + FORMATS[options.alignments](each) for each in n_best)


FORMATS: dict[str | None, Callable[["Translation"], str]] = {
    None: lambda each: "",
    "pharaoh": lambda each: f" ||| {each.links}",
    # Words are separated by spaces, within a word the source positions by commas.
    "soft": lambda each: " ||| " + " ".join(",".join(f"{weight:.4f}" for weight in row) for row in each.weights),
    "words": lambda each: f" ||| {format_words(each.source_words, each.target_words)} ||| {each.links}",
}


def show_attention(translation: "Translation", number: int, options: argparse.Namespace) -> None:
    """Show the attention of a translation as the options ask."""
    if not translation.target_words or not (options.show_alignment or options.heatmap):
        return
    words = (translation.source_words, translation.target_words)
    if options.show_alignment:
        from rich.console import Console

        from nmt.view.text_heatmap import render_text

        width = Console(stderr=True).width if sys.stderr.isatty() else None
        print(render_text(translation.weights, *words, width=width), file=sys.stderr)
    if options.heatmap and is_drawable(translation):
        from nmt.view.heatmap import draw_heatmap, save_png

        folder = Path(options.heatmap)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            save_png(draw_heatmap(translation.weights, *words), folder / f"{number:05d}.png")
        except OSError as error:
            raise UserError(f"cannot write heatmaps to {folder}: {error.strerror}") from error


if __name__ == "__main__":
    main()
