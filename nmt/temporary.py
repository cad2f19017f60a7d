"""Folders for files that are not complete yet, beside the place that they will be renamed to."""

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def temporary_folder(place: Path) -> Iterator[Path]:
    """Yield a new folder beside `place`, named .NAME.HOST.PROCESS-..., and delete it afterwards.

    Those that killed processes of this machine have left for the same place are deleted first.
    """
    for left in leftovers(place):
        shutil.rmtree(left, ignore_errors=True)
    prefix = f".{place.name}.{socket.gethostname()}.{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=place.parent) as folder:
        yield Path(folder)


def leftovers(place: Path) -> list[Path]:
    """Return the temporary folders for a place whose process on this machine has ended."""
    start = f".{place.name}.{socket.gethostname()}."
    found = [each for each in place.parent.glob(".*") if each.name.startswith(start)]
    return [each for each in found if not is_alive(each.name.removeprefix(start).split("-")[0])]


def is_alive(process: str) -> bool:
    """Tell whether a process of this machine is running; also of what is no number."""
    if not process.isdecimal():
        return True
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to somebody else
        return True
    return True
