"""The manifest of a checkpoint: size and SHA-256 of each of its files, so that a damaged one is never loaded."""

import json
from collections.abc import Callable
from pathlib import Path

import torch

from nmt.data.tables import digest_of
from nmt.errors import UserError

MANIFEST = "manifest.json"
FORMAT = 1


def write_manifest(folder: Path) -> None:
    """Write the manifest of the files in a folder."""
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": digest_of(path)}
        for path in sorted(folder.iterdir())
        if path.name != MANIFEST
    }
    manifest = {"format": FORMAT, "torch": torch.__version__, "files": files}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def verify(folder: Path, concerns: Callable[[str], bool]) -> None:
    """Check a checkpoint's files against its manifest, if it has one: those for whose names `concerns(name)` is true;
    raise UserError if one is missing or is not as it was saved, or the manifest cannot be read.
    """
    path = folder / MANIFEST
    if not path.exists():
        return
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        version, files = int(manifest["format"]), dict(manifest["files"])
        wanted = {name: str(files[name]["sha256"]) for name in files if concerns(name)}
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}); {advice(folder)}") from None
    if version > FORMAT:
        raise UserError(f"{path} has format {version}, and this version of nmt reads {FORMAT}: install a newer one")
    for name, digest in wanted.items():
        if not (folder / name).is_file():
            raise UserError(f"{folder / name} is missing; {advice(folder)}")
        if digest_of(folder / name) != digest:
            raise UserError(f"{folder / name} is not as it was saved, but damaged or edited; {advice(folder)}")


def advice(folder: Path) -> str:
    """Return advice for a damaged checkpoint: use another one of its run, restore a copy, or skip the check."""
    if folder.parent.name == "snapshots":  # of a model of the hub, in the cache of its client
        return f"delete {folder.parents[1]} to download it again; its owner may have to upload it again"
    others = [each for each in ("best", "last") if each != folder.name and (folder.parent / each / MANIFEST).exists()]
    other = f"use {folder.parent / others[0]}, " if folder.parent.name == "checkpoints" and others else ""
    return f"{other}put back a copy, or delete {MANIFEST} to load the files as they are"
