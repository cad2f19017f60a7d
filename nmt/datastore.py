"""Make a run's datastore, for search.neighbors: `python -m nmt.datastore RUN [--source FILE --target FILE]`.

The model reads the training text, or that of two files. At each target subword, the features that its output layer
reads are stored with the subword. `search.neighbors=32` then looks up which words followed in the most similar places,
also in text that the model was not trained on.
"""

import argparse
import contextlib
import dataclasses

from nmt.cli import Parser, user_errors
from nmt.errors import UserError


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line; it does not import torch, so that --help is instant."""
    parser = Parser(prog="python -m nmt.datastore", description=(__doc__ or "").partition("\n\n")[2])
    add = parser.add_argument
    add("run", metavar="RUN", help="run or checkpoint folder, or hub:USER/NAME[@REVISION]")
    add("--source", nargs="+", metavar="FILE", help="text to read instead of the training text")
    add("--target", nargs="+", metavar="FILE", help="its translation")
    add("--device", default="auto", choices=("auto", "cpu", "cuda"), help="where to read it (%(default)s)")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    with user_errors():
        options = build_parser().parse_args(arguments)
        if (options.source is None) != (options.target is None):
            raise UserError("--source and --target belong together: give both, or neither for the training text")
        from nmt.training.console import LiveDisplay, LogHandler

        with contextlib.closing(LogHandler(LiveDisplay())) as messages:
            messages.open()
            run(options)


def run(options: argparse.Namespace) -> None:
    """Make the datastore; raise UserError if a checkpoint, text or faiss is missing, or it cannot be written."""
    from nmt.config.schema import SplitConfig
    from nmt.data.batch import trained_rows
    from nmt.data.corpus import clean, load_split
    from nmt.data.tables import encode
    from nmt.fast.accelerate import accelerate
    from nmt.models.checkpoint import load_checkpoint, resolve_device
    from nmt.models.neighbors import build, check_installed, check_place, save_datastore

    check_installed()
    checkpoint = load_checkpoint(options.run, resolve_device(options.device))
    check_place(options.run, checkpoint)
    data = checkpoint.config.data
    if options.source:
        text = SplitConfig(source=options.source, target=options.target)
        data = dataclasses.replace(data, kind="text", train=text)
    corpus, cleaning = clean(load_split(data, "train"), data.cleaning)
    print(f"{'training text' if options.source is None else 'text'}: {cleaning}")
    encoded = encode(corpus, checkpoint.tokenizers, cache_dir=data.cache_dir, num_workers=data.num_workers)
    if checkpoint.config.model.fast == "auto":
        accelerate(checkpoint.model)
    rows = trained_rows(encoded.source.lengths, encoded.target.lengths, checkpoint.config.batch.max_length)
    datastore = build(checkpoint.model, encoded.source, encoded.target, rows)
    about = {"pairs": len(rows), "tokens": len(datastore.tokens)}
    pairs = ((pair["source"], pair["target"]) for pair in corpus)
    folder = save_datastore(options.run, checkpoint, datastore, pairs, about)
    print(f"written to {folder}: {about['tokens']:,} subwords; now translate with search.neighbors=32 (--neighbors 32)")


if __name__ == "__main__":
    main()
