"""More training text from one's own models: data diversification, or distillation from an ensemble.

    python scripts/diversify.py --forward RUN [RUN ...] --backward RUN [RUN ...] --output DIR
    python scripts/diversify.py --forward RUN RUN RUN --ensemble --original-share 0 --output DIR

Data diversification (Nguyen et al., 2020): every forward run translates the sources of its training text, every
backward run (target to source) the targets, and the pairs of a sentence and its translation are added to the original
pairs, without duplicates. Distillation (Kim & Rush, 2016): the translations of an ensemble take the place of the
original targets.

DIR gets train.SOURCE and train.TARGET (named by language), and train.tsv, which says of each line what it is (original,
forward-1, backward-2 ...) and which line of the training text it was made from. summary.json holds the settings, and
the BLEU of each run's translations against the text it was trained on. DIR/parts keeps the translations: a call that
was interrupted, or killed, goes on where it was, and shares can be changed without translating again.
"""

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from diversification.teachers import teachers_of
from diversification.text import Text, check_output, load_text
from diversification.translating import Part, Progress, Search, translate
from diversification.writing import Counts, write
from nmt.cli import Parser, user_errors
from nmt.config.schema import PRECISIONS, UNITS
from nmt.errors import UserError, write_errors
from nmt.translate import add_sampling, at_least, replace_together, sampling_of
from studies.options import use_threads
from studies.study import log
from studies.tables import print_table

# Translations of text that a model has not seen seldom agree with the one reference as much as this.
BY_HEART = 60.0  # BLEU


def main() -> None:
    """Translate the training text with every teacher, and write it with the originals."""
    with user_errors():
        options = build_parser().parse_args()
        shares = {name: getattr(options, f"{name}_share") for name in ("original", "forward", "backward")}
        search = search_of(options)
        teachers = teachers_of(options.forward, options.backward, together=options.ensemble)
        use_threads(options.threads)
        text = load_text(teachers[0], options.source, options.target)
        check_output(text, options.output)
        log(f"{len(text.lines):,} pairs of training text, {len(teachers)} x to be translated")
        progress = Progress(len(teachers) * len(text.lines))
        folder, seed = options.output, 1 if options.seed is None else options.seed
        parts = [translate(each, n, text, search, folder / "parts", progress) for n, each in enumerate(teachers)]
        counts = write(text, parts, shares, seed, folder)
        report(text, parts, counts, {"shares": shares, "seed": seed}, folder)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    count, share = at_least(int, 1), at_least(float, 0)
    add = parser.add_argument
    add("--forward", nargs="+", default=[], metavar="RUN", help="runs or checkpoints from source to target")
    add("--backward", nargs="+", default=[], metavar="RUN", help="runs or checkpoints from target to source")
    add("--ensemble", action="store_true", help="the runs of a direction translate together, as one")
    add("--output", type=Path, required=True, metavar="DIR", help="folder to write to, or to go on in")
    add("--source", metavar="FILE", help="text to translate (default: the training text of the first run)")
    add("--target", metavar="FILE", help="its other side, as the forward runs have it")
    add("--original-share", type=share, default=1.0, metavar="X", help="of the original pairs (1); 2: each twice")
    add("--forward-share", type=share, default=1.0, metavar="X", help="of the forward translations, at most 1 (1)")
    add("--backward-share", type=share, default=1.0, metavar="X", help="of the backward translations, at most 1 (1)")
    group = parser.add_argument_group("search")
    add = group.add_argument
    add("--beam-size", type=count, metavar="N", help="hypotheses kept; 1 is greedy (default: the run's)")
    add("--length-penalty", type=at_least(float, 0), metavar="X", help="score = log p / length^X (default: the run's)")
    add("--n-best", type=count, default=1, metavar="N", help="translations of each sentence by each run (%(default)s)")
    add("--batch-size", type=count, metavar="N", help="size of what is translated together (default: the run's)")
    add("--batch-unit", choices=UNITS, help="what --batch-size counts (default: the run's)")
    add("--device", default="auto", choices=("auto", "cpu", "cuda"), help="where to translate (%(default)s)")
    add("--precision", default="fp32", choices=PRECISIONS, help="of the products; int8 is for a CPU (%(default)s)")
    add("--threads", type=count, metavar="N", help="CPU threads (default: torch's own choice)")
    add_sampling(parser)
    return parser


def search_of(options: argparse.Namespace) -> Search:
    """Return how the options ask to translate; raise UserError for options that do not go together, or out of range."""
    if bool(options.source) != bool(options.target):
        raise UserError("--source and --target belong together: give both, or none for the training text of the run")
    for name in ("forward", "backward"):
        if getattr(options, f"{name}_share") > 1:
            raise UserError(f"--{name}-share is at most 1: equal pairs are written once; for more, --n-best")
    if math.isinf(options.original_share):
        raise UserError("--original-share is infinite: give how often each pair is to be written")
    of_teachers = (getattr(options, f"{name}_share") for name in ("forward", "backward") if getattr(options, name))
    if not any((options.original_share, *of_teachers)):
        raise UserError("nothing would be written: all shares are 0")
    # The seed chooses the pairs of a share too, so it may be given without --sample.
    drawing = argparse.Namespace(**{**vars(options), "seed": options.seed if options.sample else None})
    names = ("beam_size", "length_penalty", "batch_size", "batch_unit")
    settings = {name: getattr(options, name) for name in names}
    return Search(options.device, options.precision, options.n_best, settings, sampling_of(drawing))


def report(text: Text, parts: Sequence[Part], counts: Sequence[Counts], settings: dict[str, Any], folder: Path) -> None:
    """Write summary.json, print it as a table, and warn of teachers that know their training text by heart."""
    runs = ["", *(" + ".join(part.teacher.runs) for part in parts)]
    facts: list[dict[str, Any]] = [{"bleu": None}, *(part.facts for part in parts)]
    files = [str(folder / f"train.{suffix}") for suffix in text.suffixes]
    pairs = sum(count.written for count in counts)
    origins = [{**asdict(count), "runs": run, **fact} for count, run, fact in zip(counts, runs, facts, strict=True)]
    summary = {"files": files, "pairs": pairs, **settings, "origins": origins}
    with write_errors(folder), replace_together(folder / "summary.json") as (file,):
        file.write(json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    shown = [{name: each[name] for name in ("runs", "bleu", *asdict(counts[0]))} for each in origins]
    print_table([{"name": each.pop("name"), **each} for each in shown], f"{pairs:,} pairs in {' and '.join(files)}")
    for each in origins:
        if each["bleu"] is not None and each["bleu"] > BY_HEART:
            log(
                f"warning: {each['name']} ({each['runs']}) has a BLEU of {each['bleu']:.1f} on this text: "
                f"above {BY_HEART:g} a model has mostly learned its training text by heart, and its translations of it "
                "add little. If this is that text, take an earlier checkpoint, runs trained on other parts of it, or a "
                "higher temperature of --sample"
            )


if __name__ == "__main__":
    main()
