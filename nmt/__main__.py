"""All commands under one name: `nmt train`, `nmt translate` and so on, or `python -m nmt COMMAND`."""

import importlib
import sys

from nmt.cli import user_errors
from nmt.errors import unknown

COMMANDS = {
    "train": "learn to translate from parallel text: [GROUP=NAME] [key.path=value ...]",
    "translate": "translate lines of text: [TEXT ...] [--checkpoint RUN] [--input FILE] ...",
    "evaluate": "score a run, draw its alignments, write a report: checkpoint=RUN [key.path=value ...]",
    "export": "write a run as ONNX graphs, for programs without PyTorch: RUN [--output DIR] [--int8]",
    "datastore": "store what a run's model knows of its text, for search.neighbors: RUN [--source F --target F]",
    "doctor": "check a run, a cache or the installation: [FOLDER ...]",
    "share": "upload a run to the Hugging Face hub: RUN USER/NAME [--private] [--dry-run]",
    "serve": "open a page to type sentences and see their alignments: checkpoint=RUN [key.path=value ...]",
}
USAGE = f"""usage: nmt COMMAND ...        (or: python -m nmt COMMAND ..., python -m nmt.COMMAND ...)

{chr(10).join(f"  {name:<10} {summary}" for name, summary in COMMANDS.items())}

nmt COMMAND --help tells more."""


def main() -> None:
    """Run the command that the first argument names with the other arguments; without one, list the commands."""
    with user_errors():
        name, *arguments = sys.argv[1:] or ["--help"]
        if name in ("-h", "--help", "help"):
            print(USAGE)
        elif name not in COMMANDS:
            raise unknown("command", name, COMMANDS)
        else:
            sys.argv = [f"nmt {name}", *arguments]
            importlib.import_module(f"nmt.{name}").main()


if __name__ == "__main__":
    main()
