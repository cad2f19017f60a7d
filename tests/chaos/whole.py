"""The run that nothing disturbed, which every other is compared with."""

from pathlib import Path
from typing import NamedTuple

from tests.processes import digest


class Whole(NamedTuple):
    """A run that nothing disturbed: how it is started, its folder, and the digest of its last weights."""

    options: list[str]
    folder: Path
    weights: str


def weights(run: Path) -> str:
    """Return the digest of the last weights of a run."""
    return digest(run / "checkpoints" / "last" / "model.safetensors")
