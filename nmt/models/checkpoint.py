"""Checkpoints: folders that hold all that translation needs, written atomically, loaded without running code.

One trainer writes a run's checkpoints. Any number of processes may read them meanwhile; readers never modify a
checkpoint.
"""

import contextlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_model, save_model
from torch import nn

from nmt.config.file import load_config, save_config
from nmt.config.schema import TrainConfig
from nmt.errors import UserError, one_line, unknown, write_errors
from nmt.formats import from_here
from nmt.models.build import build_model
from nmt.models.hub import fetch, is_address, parse_address, results_folder
from nmt.models.manifest import MANIFEST, verify, write_manifest
from nmt.models.seq2seq import Seq2Seq
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.text.vocabulary import Vocabulary

WEIGHTS = "model.safetensors"
CONFIG = "config.yaml"
TRAINING_STATE = "training_state.pt"
# Written beside a checkpoint when its run has ended, and not in its manifest: people edit the card.
CARD, PICTURE = "README.md", "alignment.png"
SUBWORDS = tuple(f"{side}{kind.suffix}" for side in ("joint", "source", "target") for kind in (Tokenizer, Vocabulary))
SHARED = (CONFIG, WEIGHTS, *SUBWORDS, MANIFEST, CARD, PICTURE)  # what is taken from the hub and uploaded to it

Result = TypeVar("Result")


@dataclass(frozen=True)
class Checkpoint:
    """A trained model with its configuration and tokenizers, read from `folder`; `step` counts its updates."""

    model: Seq2Seq
    config: TrainConfig
    tokenizers: Tokenizers
    folder: Path
    step: int
    longest_source: int  # in subwords, of those trained on


def save_checkpoint(
    folder: Path,
    model: nn.Module,
    config: TrainConfig,
    tokenizers: Tokenizers,
    *,
    step: int,
    longest_source: int | None = None,
    training_state: Mapping[str, Any] | None = None,
) -> None:
    """Write a checkpoint atomically: `folder` is always complete, the old one or the new one; raise UserError if it
    cannot be written.

    A temporary sibling is filled, flushed to disk and renamed into place. `longest_source` is the length of the longest
    training sources in subwords; if it is None, loading assumes `batch.max_length`.
    """
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    with write_errors(folder, "free some space and start again: what was saved before is as it was"):
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir(parents=True)
            metadata = {"step": str(step)} | ({} if longest_source is None else {"longest": str(longest_source)})
            save_weights(model, temporary / WEIGHTS, metadata)
            sort_metadata(temporary / WEIGHTS)
            save_config(config, temporary / CONFIG)
            # Safetensors lets the owner alone read what it writes; other files are as readable as the umask allows.
            (temporary / WEIGHTS).chmod((temporary / CONFIG).stat().st_mode)
            tokenizers.save(temporary)
            if training_state is not None:
                torch.save(dict(training_state), temporary / TRAINING_STATE)
            write_manifest(temporary)
            for path in (*temporary.iterdir(), temporary):
                flush(path)
            replace_folder(temporary, folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def save_weights(model: nn.Module, path: Path, metadata: dict[str, str]) -> None:
    """Write the weights of a model, each once. On a GPU cuDNN keeps those of a layer in one piece of memory, which
    safetensors refuses to write: such weights are copied.
    """

    def separate(module: nn.Module, state: dict[str, Any], prefix: str, local_metadata: dict[str, Any]) -> None:
        for name, weight in state.items():
            if weight.untyped_storage().nbytes() > weight.nbytes:
                state[name] = weight.clone()

    hook = model.register_state_dict_post_hook(separate)
    try:
        save_model(model, str(path), metadata)
    finally:
        hook.remove()


def sort_metadata(path: Path) -> None:
    """Sort the metadata of a weights file, so that equal weights give equal bytes: safetensors writes it in any order.

    The file begins with the length of its header (8 bytes, little-endian) and the header, which is JSON.
    """
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        assert len(text) <= size
        file.seek(8)
        file.write(text.ljust(size))


def replace_folder(new: Path, folder: Path) -> None:
    """Rename `new` to `folder`. Two folders cannot be exchanged in one call, so for a moment only `retired` exists.

    Readers then take that one (`find_checkpoint`); after a crash at that moment `recover` renames it back.
    """
    old = retired(folder)
    remove(old)
    if folder.is_symlink() or folder.exists():  # a link may lead to a disk that is gone
        folder.rename(old)
    new.rename(folder)
    flush(folder.parent)
    remove(old)


def remove(folder: Path) -> None:
    """Delete a checkpoint folder, if there is one, as far as possible; of a link to one, the link."""
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def recover(checkpoints: Path) -> None:
    """Delete unfinished checkpoints and rename back retired ones after a crash; only the trainer that resumes may."""
    for unfinished in checkpoints.glob(".*.tmp"):
        shutil.rmtree(unfinished, ignore_errors=True)
    for old in checkpoints.glob(".*.old"):
        folder = checkpoints / old.name.removeprefix(".").removesuffix(".old")
        if folder.exists():
            remove(old)
        else:
            old.rename(folder)


def retired(folder: Path) -> Path:
    """Return the path of the previous checkpoint while the next one is renamed into its place."""
    return folder.parent / f".{folder.name}.old"


def flush(path: Path) -> None:
    """Force a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_complete(folder: Path) -> bool:
    """Return whether a folder holds the weights and the configuration of a checkpoint."""
    return (folder / WEIGHTS).is_file() and (folder / CONFIG).is_file()


def find_checkpoint(path: str | Path) -> Path:
    """Return the checkpoint folder of a run (its best; before the first validation its last), of a checkpoint, or of a
    model of the hub; raise UserError if there is none, or the best has lost files.

    Nothing is renamed or written but the cache of the hub's client: a trainer may be running.
    """
    if not str(path):
        raise UserError("no checkpoint is named: give the folder of a run or of a checkpoint")
    root = local(path)
    best, last = root / "checkpoints" / "best", root / "checkpoints" / "last"
    for folder in (best, last, root):
        # The second look at `folder` finds a checkpoint that was renamed into place since the first.
        for place in (folder, retired(folder), folder):
            if is_complete(place):
                return place
        if folder == best and folder.is_dir():
            raise UserError(f"{folder} has lost {WEIGHTS} or {CONFIG}: put it back, or give {last} to use that")
    reason = "there is no such folder; give the folder of a run or of a checkpoint"
    if root.exists():
        reason = f"neither checkpoints/best, checkpoints/last nor the folder itself holds {WEIGHTS} and {CONFIG}"
    raise UserError(f"no checkpoint at {path}: {reason}")


def run_of(path: Path) -> Path:
    """Return the folder of a run; a folder of links to a run's files, such as outputs/latest, is resolved.

    Otherwise the path would mean another run once one is started. Relative to the working directory where possible.
    """
    if not ((path / CONFIG).is_symlink() and (path / "checkpoints").is_symlink()):
        return path
    return from_here((path / CONFIG).resolve().parent)


def place_in_run(folder: Path) -> Path | None:
    """Return the path RUN/checkpoints/NAME of a checkpoint folder; None for a folder that is in no run.

    The checkpoints of a run, or one of them, may be a link to another disk.
    """
    for place in (folder.absolute(), folder.resolve()):
        is_run = (place / "checkpoints").is_dir()  # in a folder that happens to be called checkpoints
        if place.parent.name == "checkpoints" and not is_run:
            return run_of(place.parents[1]).resolve() / "checkpoints" / place.name
    return None


def run_of_checkpoint(folder: Path) -> Path | None:
    """Return the run that a checkpoint folder is in; None for a folder that is in no run."""
    place = place_in_run(folder)
    return place and place.parents[1]


def place_for(name: str, run: str | Path, folder: Path) -> Path:
    """Return the folder of this name for what is made of a checkpoint, whose `folder` was found at `run`.

    It is in the run, since training replaces folders of checkpoints; of the last checkpoint it is NAME-last.
    """
    if is_address(run):
        return results_folder(str(run)) / name
    place = place_in_run(folder)
    if place is None:
        return folder.resolve() / name
    return place.parents[1] / (f"{name}-last" if place.name == "last" else name)


def local(path: str | Path) -> Path:
    """Return a local path unchanged; download an address of the hub (`nmt.models.hub`) and return its folder, or raise
    UserError if that fails or the files are not a model of nmt.
    """
    if not is_address(path):
        return Path(path).expanduser()
    folder = fetch(parse_address(str(path)), SHARED)
    if missing := [name for name in (CONFIG, WEIGHTS) if not (folder / name).is_file()]:
        raise UserError(f"{path} is no model of nmt: it holds no {' and no '.join(missing)}")
    return folder


def load_checkpoint(path: str | Path, device: str | torch.device = "cpu", *, verified: bool = True) -> Checkpoint:
    """Load a run's best checkpoint, a checkpoint folder, or a model of the hub, ready to translate; raise UserError if
    there is none, or its files do not fit together.

    It is read again if a trainer has replaced it meanwhile. `verified`: its files are compared with its manifest, which
    takes about a second per gigabyte.
    """
    return read_unreplaced(lambda: find_checkpoint(path), lambda folder: read_checkpoint(folder, device, verified))


def read_unreplaced(find: Callable[[], Path], read: Callable[[Path], Result]) -> Result:
    """Return `read(find())` of a checkpoint folder; both are done again if a trainer has replaced it meanwhile."""
    while True:
        folder = find()
        before = identity(folder)
        try:
            result = read(folder)
        except (OSError, UserError):
            if before is not None and identity(folder) == before:
                raise
        else:
            if identity(folder) == before:
                return result


def identity(folder: Path) -> tuple[int, int] | None:
    """Return the inode and modification time of a folder, which differ from its successor's; None if there is none."""
    try:
        status = folder.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def read_checkpoint(folder: Path, device: str | torch.device, verified: bool) -> Checkpoint:
    """Load a checkpoint folder, or raise `UserError` where its files are damaged or do not fit together."""
    if verified:
        verify(folder, lambda name: name != TRAINING_STATE)
    config = load_config(folder / CONFIG)
    tokenizers = Tokenizers.load(folder)
    sizes = len(tokenizers.source), len(tokenizers.target)
    try:
        with safe_open(str(folder / WEIGHTS), framework="pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
        step, longest_source = int(metadata.get("step", 0)), int(metadata.get("longest", config.batch.max_length))
        check_sizes(config, sizes[1], shapes)
        with usual_defaults():
            model = build_model(config.model, *sizes, joint=tokenizers.joint)
        load_model(model, str(folder / WEIGHTS))
    except UserError as error:
        raise UserError(f"{folder / CONFIG} is not a configuration of nmt: {error}") from None
    except (SafetensorError, RuntimeError, ValueError) as error:
        if not str(folder).isprintable() and "UTF-8" in str(error):
            raise UserError(f"{str(folder)!a} is no path in UTF-8: rename it, or give a path within it") from None
        reason = one_line(error)
        raise UserError(f"cannot load {folder / WEIGHTS}: {reason}; it does not fit {CONFIG}, or is damaged") from error
    for name, value in model.state_dict().items():
        if not value.isfinite().all():
            raise UserError(f"cannot load {folder / WEIGHTS}: {name} has values that are not finite; it is damaged")
    return Checkpoint(model.to(device).eval(), config, tokenizers, folder, step, longest_source)


@contextlib.contextmanager
def usual_defaults() -> Iterator[None]:
    """Make new tensors in fp32 on the CPU within the block, whatever defaults of torch the caller has set."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.device("cpu"):
            yield
    finally:
        torch.set_default_dtype(dtype)


def check_sizes(config: TrainConfig, vocab_size: int, shapes: Mapping[str, list[int]]) -> None:
    """Raise ValueError if weights of these shapes are too small for the configured model.

    This rejects a damaged or hostile configuration before memory is allocated: for each size, the model has a matrix
    with at least the number of elements given here. Exact shapes are checked when the weights are loaded.
    """
    model, numbers = config.model, sum(map(math.prod, shapes.values()))
    least = {
        "embedding_size": vocab_size * model.embedding_size,
        "hidden_size": model.hidden_size**2,
        "attention.size": model.hidden_size * (model.attention.size or 0),
        "attention.num_basis": model.attention.num_basis if model.attention.score == "location" else 0,
    }
    for name, needed in least.items():
        if needed > numbers:
            raise ValueError(f"it has {numbers:,} numbers, too few for model.{name}")
    if model.num_layers > len(shapes):
        raise ValueError(f"it has {len(shapes)} tensors, too few for model.num_layers={model.num_layers}")


@contextlib.contextmanager
def training_state(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the `training_state` that `save_checkpoint` was given, to resume from; raise UserError if it is missing or
    unreadable, or the block cannot use it: then the checkpoint can only translate. Never runs code from the file.
    """
    path = folder / TRAINING_STATE
    advice = f"put back a copy, or give another run_dir with trainer.initialize_from={folder} to keep what is learned"
    if not path.is_file():
        raise UserError(f"cannot continue from {folder}: it has no {TRAINING_STATE}; {advice}")
    verify(folder, lambda name: name == TRAINING_STATE)

    def unusable(reason: str) -> UserError:
        return UserError(f"cannot continue from {path}: it is damaged, or another version's ({reason}); {advice}")

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # whatever the bytes lead to; torch's own message advises to run them
        raise unusable(type(error).__name__) from error
    try:
        yield state
    except UserError:
        raise
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise unusable(f"{type(error).__name__}: {one_line(error)}") from error


def resolve_device(name: str) -> torch.device:
    """Return the device of `auto`, `cpu` or `cuda`; raise UserError for another, or if cuda is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device=cuda: torch sees no CUDA GPU here; use cpu or auto, or install a CUDA build of torch")
    try:
        return torch.device(name)
    except RuntimeError:
        raise unknown("device", name, ("auto", "cpu", "cuda")) from None
