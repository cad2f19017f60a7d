"""The lock of a run: at most one process per machine trains in a run's folder."""

import contextlib
import errno
import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from nmt.errors import UserError, write_errors

logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


@contextlib.contextmanager
def locked(run_dir: Path) -> Iterator[None]:
    """Hold the lock of a run, a POSIX record lock on RUN/.lock.

    The system frees it when the process ends, however it ends, so the file alone locks nothing. It names the process
    that holds, or last held, the lock; where nothing else is written into the folder, it is removed. Readers of a run
    need no lock.

    Raises:
        UserError: another process holds it, or the folder cannot be written.
    """
    path = run_dir / LOCK_FILE
    with write_errors(path, "choose another run_dir"):
        run_dir.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    with file:
        take_lock(file.fileno(), path)
        holder = f"process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
        try:
            with write_errors(path, "free some space, or choose another run_dir"):
                file.truncate(0)
                os.write(file.fileno(), holder.encode())  # not kept by the file, which would fail again when closed
            yield
        finally:
            if [*run_dir.glob("*")] == [path]:
                path.unlink()


def take_lock(descriptor: int, path: Path) -> None:
    """Lock an open file, or raise UserError naming the holder; a file system without locks gets a warning."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_held = path.exists() and path.stat().st_ino == os.fstat(descriptor).st_ino
    except OSError as error:
        if error.errno in NO_LOCKS:
            logger.warning("%s: its file system has no locks; start one training in it at a time", path.parent)
            return
        is_held = False
    if not is_held:  # by this process; the holder may just have removed the file
        holder = path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else ""
        raise UserError(
            f"{path.parent} is being trained in by {holder or 'another process'}: wait for it or stop it, or give "
            "another run_dir"
        )


def lock_holder(run_dir: Path) -> str | None:
    """Return who holds the lock of a run, or None; nothing is changed.

    Not for the process that trains: the system frees its lock when any of its descriptors of the file is closed.
    """
    path = run_dir / LOCK_FILE
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", errors="replace") as file:
        try:
            fcntl.lockf(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)  # who may read the run may ask
        except OSError as error:
            return None if error.errno in NO_LOCKS else file.read().strip() or "another process"
    return None
