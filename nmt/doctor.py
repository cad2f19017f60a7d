"""Check a run, a checkpoint, a cache or the installation: `python -m nmt.doctor [FOLDER ...]`.

Nothing is changed. Each finding says what to do. Exit status: 0 all well, or 2 where something is damaged.
"""

import importlib.metadata
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nmt.cli import Parser, user_errors
from nmt.errors import UserError

PACKAGES = ("nmt", "torch", "sentencepiece", "datasets", "sacrebleu", "hydra-core", "tensorboard", "matplotlib")
SCRIPTS = {"Chinese": "中", "Japanese": "か", "Korean": "한", "Arabic": "ع", "Hindi": "ह", "Thai": "ก"}
GIGABYTE = 2**30  # bytes; with less space a disk will soon be full


class Finding(NamedTuple):
    """A thing that was looked at: its `state` is `ok`, `note` or `damaged`."""

    state: str
    what: str
    found: str


def parser() -> Parser:
    """Return the parser of the command line."""
    parser = Parser(prog="python -m nmt.doctor", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("folder", nargs="*", type=Path, metavar="FOLDER", help="run, checkpoint or cache")
    parser.add_argument("--json", action="store_true", help="one JSON object a finding")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    with user_errors():
        options = parser().parse_args(arguments)
        findings = [finding for folder in options.folder for finding in examine(folder)] or list(installation())
        for each in findings:
            print(json.dumps(each._asdict()) if options.json else f"{each.state:<8}{each.what}: {each.found}")
        if any(each.state == "damaged" for each in findings):
            sys.exit(2)


def examine(folder: Path) -> Iterator[Finding]:
    """Yield the findings for a folder; raise UserError unless it is a run, a checkpoint or a cache."""
    from nmt.models.checkpoint import run_of

    folder = run_of(folder)
    if not folder.is_dir():
        raise UserError(f"no folder {folder}: give a run, a checkpoint or a cache of corpora")
    kinds = {
        examine_run: (folder / "checkpoints").is_dir() or (folder / "metrics.jsonl").is_file(),
        examine_checkpoint: (folder / "model.safetensors").is_file(),
        examine_cache: any(any(folder.glob(name)) for name in ("*.arrow", "*.sha256", ".*.arrow.*")),
    }
    if not any(kinds.values()):
        raise UserError(f"{folder} is neither a run, a checkpoint nor a cache of corpora")
    for examine_kind, is_of_kind in kinds.items():
        if is_of_kind:
            yield from examine_kind(folder)
    yield space(folder)


def examine_run(run: Path) -> Iterator[Finding]:
    """Yield the findings for a run: its lock, checkpoints, datastores, configuration and records."""
    from nmt.evaluation.records import RECORDS, read_records
    from nmt.models.checkpoint import retired
    from nmt.training.lock import lock_holder

    holder = lock_holder(run)
    if holder:
        yield Finding("note", str(run), f"is being trained in by {holder}")
    else:
        yield Finding("ok", str(run), "is at rest")
    records = read_records(run / RECORDS)
    was_saved = any(record.get("event") == "validation" and record.get("loss") is not None for record in records)
    for folder in [run / "checkpoints" / name for name in ("best", "last")]:
        # The second look at `folder` finds one that a training has renamed into place since the first.
        if any(place.is_dir() for place in (folder, retired(folder), folder)):
            yield from examine_checkpoint(folder)
        elif not holder:
            lost = Finding("damaged", str(folder), "is lost: put it back, or train anew in another folder")
            none = Finding("note", str(folder), "is missing: training has ended before its first validation")
            yield lost if was_saved else none
    for leftover in sorted((run / "checkpoints").glob(".*")):
        if not holder:
            yield Finding("note", str(leftover), "was left by a killed training: the next one removes or restores it")
    for name in ("datastore", "datastore-last"):
        yield from examine_datastore(run / name)
    yield from examine_config(run / "config.yaml")
    yield from examine_records(run / "metrics.jsonl")
    yield from examine_records(run / "alignments.jsonl")


def examine_datastore(folder: Path) -> Iterator[Finding]:
    """Yield whether a datastore is as it was saved; whether it is of these weights is told where it is used."""
    from nmt.models.neighbors import verified

    if folder.is_dir():
        about = verified(folder)
        if about is None:
            yield Finding("damaged", str(folder), "is not as it was saved: make it anew with python -m nmt.datastore")
        else:
            yield Finding("ok", str(folder), f"{about['tokens']:,} subwords")


def examine_config(path: Path) -> Iterator[Finding]:
    """Yield whether the configuration of a run can be read."""
    from nmt.config.file import load_config

    if path.is_file():
        try:
            load_config(path)
        except UserError as error:
            yield Finding("damaged", str(path), f"{error}: resuming rewrites it")
        else:
            yield Finding("ok", str(path), "the settings of the run")


def examine_records(path: Path) -> Iterator[Finding]:
    """Yield whether all records of a run can be read."""
    from nmt.evaluation.records import parse_record, record_lines

    if path.is_file():
        lines = record_lines(path)
        bad = [number for number, line in enumerate(lines, start=1) if parse_record(line) is None]
        if bad:
            yield Finding(
                "note", str(path), f"{len(bad)} lines are no records, the first is {bad[0]}: a resume drops them"
            )
        else:
            yield Finding("ok", str(path), f"{len(lines):,} records")


def examine_checkpoint(folder: Path) -> Iterator[Finding]:
    """Yield the findings for a checkpoint; it is examined again if a training has replaced it meanwhile.

    That of a training that was killed while it replaced it is found where it was left.
    """
    from nmt.models.checkpoint import read_unreplaced, retired

    def find() -> Path:
        return next((each for each in (folder, retired(folder)) if each.is_dir()), folder)

    yield from read_unreplaced(find, lambda place: list(examine_files(place)))


def examine_files(folder: Path) -> Iterator[Finding]:
    """Yield whether a checkpoint is as it was saved, can be loaded, and can be continued."""
    from nmt.models.checkpoint import TRAINING_STATE, load_checkpoint, training_state
    from nmt.models.manifest import MANIFEST, verify
    from nmt.training.optimizer import build_optimizer

    try:
        verify(folder, lambda name: True)
        checkpoint = load_checkpoint(folder, verified=False)
        what = f"{checkpoint.config.data.direction}, update {checkpoint.step:,}"
        if (folder / TRAINING_STATE).is_file():
            with training_state(folder) as state:
                build_optimizer(checkpoint.model, checkpoint.config.optimizer).load_state_dict(state["optimizer"])
                what += ", can be continued"
    except (OSError, UserError) as error:
        yield Finding("damaged", str(folder), str(error))
        return
    yield Finding("ok", str(folder), what)
    if not (folder / MANIFEST).is_file():
        yield Finding("note", str(folder), f"has no {MANIFEST}: its integrity cannot be checked")


def examine_cache(folder: Path) -> Iterator[Finding]:
    """Yield whether the tables of a cache match their digests, and the leftovers of killed processes."""
    from nmt.data.tables import digest_file, digest_of, leftovers

    for path in sorted(folder.glob("*.arrow")):
        if not digest_file(path).is_file():
            yield Finding("note", str(path), "has no digest: it is rebuilt when needed")
        elif digest_file(path).read_bytes() == digest_of(path).encode():
            yield Finding("ok", str(path), f"{path.stat().st_size:,} bytes")
        else:
            yield Finding("damaged", str(path), "does not match its digest: it is rebuilt when needed")
    places = {each.name[1:].partition(".arrow.")[0] for each in folder.glob(".*.arrow.*")}
    for name in sorted(places):
        for leftover in leftovers(folder / f"{name}.arrow"):
            yield Finding("note", str(leftover), "was left by a killed process: delete it")


def installation() -> Iterator[Finding]:
    """Yield versions, devices, fonts and space."""
    import torch

    yield Finding("ok", "python", sys.version.split()[0])
    for package in PACKAGES:
        try:
            yield Finding("ok", package, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            yield Finding("damaged", package, f"is not installed: pip install {package}")
    yield Finding("ok", "threads", str(torch.get_num_threads()))
    names = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    yield Finding("ok", "GPU", ", ".join(names) or "none that PyTorch can use; a CPU does")
    yield from fonts()
    yield space(Path())


def fonts() -> Iterator[Finding]:
    """Yield whether heatmaps can be drawn in the scripts of several languages."""
    from nmt.view.fonts import add_new_fonts, choose_families, installed_families, package_of

    add_new_fonts()
    for language, character in SCRIPTS.items():
        chosen, missing = choose_families({character}, sorted(installed_families()))
        if missing:
            yield Finding("note", f"font for {language}", f"none: install {package_of(character)}")
        else:
            yield Finding("ok", f"font for {language}", chosen[0])


def space(folder: Path) -> Finding:
    """Return how much space is left where a folder is."""
    free = shutil.disk_usage(folder).free
    state = "ok" if free > GIGABYTE else "note"
    return Finding(state, f"space at {folder.resolve()}", f"{free / GIGABYTE:.1f} GiB free")


if __name__ == "__main__":
    main()
