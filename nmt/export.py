"""Export a run for programs without PyTorch: `python -m nmt.export RUN --to onnx [--output DIR] [--int8]`."""

import argparse
from importlib.util import find_spec

from nmt.cli import Parser, user_errors
from nmt.errors import UserError

PACKAGES = ("onnx", "onnxruntime")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line; it does not import torch, so that --help is instant."""
    parser = Parser(prog="python -m nmt.export", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("run", metavar="RUN", help="run or checkpoint folder")
    parser.add_argument("--to", default="onnx", choices=("onnx",), help="format (%(default)s)")
    parser.add_argument("--output", metavar="DIR", help="folder to write to (default: `onnx` in the run)")
    parser.add_argument("--int8", action="store_true", help="also as graphs of 8-bit integers, a quarter of the size")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    with user_errors():
        options = build_parser().parse_args(arguments)
        if missing := [name for name in PACKAGES if find_spec(name) is None]:
            raise UserError(f"nmt.export needs {' and '.join(missing)}: pip install -e '.[onnx]'")
        from nmt.exporting.run import export  # imports torch, which takes seconds, only after the options are checked

        export(options.run, options.output, int8=options.int8)


if __name__ == "__main__":
    main()
