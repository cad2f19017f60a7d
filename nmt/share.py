"""Upload a run's best checkpoint to the Hugging Face hub: `python -m nmt.share RUN USER/NAME`."""

import argparse
import shutil
import tempfile
from pathlib import Path

from nmt.cli import Parser, user_errors
from nmt.errors import UserError, write_errors

PLACEHOLDER = b"hub:USER/NAME"  # in a card, before its model has a name


def build_parser() -> Parser:
    """Return the parser of the command line."""
    parser = Parser(prog="python -m nmt.share", description=__doc__)
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="run, or folder of a best checkpoint")
    add("name", metavar="USER/NAME", help="model on the hub; created if it does not exist")
    add("--private", action="store_true", help="make a model that only its owner can read")
    add("--revision", metavar="BRANCH", help="branch to write to; created if it does not exist (default: main)")
    message = "message of the commit (%(default)s)"
    add("--message", default="Upload a translator of nmt", metavar="TEXT", help=message)
    add("--dry-run", action="store_true", help="list what would be uploaded")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    with user_errors():
        run(build_parser().parse_args(arguments))


def run(options: argparse.Namespace) -> None:
    """Upload as the options say; raise UserError if the address is malformed, the checkpoint is missing or damaged, or
    the hub refuses.
    """
    from nmt.models.checkpoint import CARD, SHARED
    from nmt.models.hub import parse_address, upload

    address = parse_address(options.name)
    if address.revision is not None:
        raise UserError(f"{options.name} has a revision: write {address.name} --revision {address.revision}")
    address = address._replace(revision=options.revision)
    with tempfile.TemporaryDirectory(prefix="nmt-share-") as folder:
        with write_errors(folder, "free some space, or set TMPDIR to another folder"):
            files = stage(options.run, Path(folder), str(address))
        for file in files:
            print(f"{file.stat().st_size:>15,}  {file.name}")
        print(f"{sum(file.stat().st_size for file in files):>15,}  bytes of {len(files)} files for {address}")
        if b"license: unknown" in (Path(folder) / CARD).read_bytes():
            print(f"note: {CARD} names no license: fill it in beside the checkpoint, and share it again")
        if options.dry_run:
            return
        url = upload(files, address, SHARED, private=options.private, message=options.message)
        print(f"shared at {url}\npython -m nmt.translate --checkpoint {address}")


def stage(run: Path, folder: Path, address: str) -> list[Path]:
    """Copy the shared files of a run's best checkpoint; start over if training replaces it meanwhile.

    A missing model card is written. In the card, the address replaces its placeholder. Raises UserError if there is no
    such checkpoint, or it is damaged.
    """
    from nmt.evaluation.model_card import write_card
    from nmt.models.checkpoint import CARD, SHARED, load_checkpoint, read_unreplaced, run_of_checkpoint

    def copy(best: Path) -> Path:
        load_checkpoint(best)
        for name in SHARED:
            (folder / name).unlink(missing_ok=True)
            if (best / name).is_file():
                shutil.copyfile(best / name, folder / name)
        return best

    best = read_unreplaced(lambda: find_best(run), copy)
    if not (folder / CARD).is_file():
        write_card(folder, run_of_checkpoint(best) or best, {})
    card = (folder / CARD).read_bytes()
    (folder / CARD).write_bytes(card.replace(PLACEHOLDER, address.encode()))
    return [folder / name for name in SHARED if (folder / name).is_file()]


def find_best(run: Path) -> Path:
    """Return the folder of a run's best checkpoint, or the folder itself if it is one; else raise UserError."""
    from nmt.models.checkpoint import TRAINING_STATE, WEIGHTS, retired

    best = run / "checkpoints" / "best"
    for folder in (best, retired(best), best, run):
        if (folder / WEIGHTS).is_file() and not (folder / TRAINING_STATE).is_file():
            return folder
    raise UserError(f"{run} has no best checkpoint: give the folder of a run that has been validated at least once")


if __name__ == "__main__":
    main()
