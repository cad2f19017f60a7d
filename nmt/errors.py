"""`UserError` for wrong input and options, name suggestions, and detection of full disks and exhausted memory."""

import contextlib
import difflib
import errno
import os
import re
from collections.abc import Iterable, Iterator


class UserError(ValueError):
    """A wrong input or option: the message says what is wrong, where, and what to do.

    The entry points print the message on standard error as one line and exit with status 2; any other exception is a
    bug and keeps its traceback.
    """


class WorkerError(UserError):
    """A helper process was ended by the system; the state of its parent is as if it had not been asked."""


def worker_error(what: str, advice: str) -> WorkerError:
    """Return the error for a helper process that was ended from outside, saying what it was and what to do."""
    return WorkerError(f"{what} was ended by the system, probably for lack of memory: {advice}")


# Notes of errors, where several processes train: one that all ranks raise together is printed by one of them.
ALL_RANKS, ONE_RANK = "raised on all ranks", "raised on rank"


def note_rank(error: BaseException, rank: int) -> None:
    """Note which rank raises an error, unless all do."""
    if ALL_RANKS not in getattr(error, "__notes__", ()):
        error.add_note(f"{ONE_RANK} {rank}")


def is_of_one_rank(error: BaseException) -> bool:
    """Return whether one of several ranks raises an error, which it has to print itself."""
    return any(note.startswith(ONE_RANK) for note in getattr(error, "__notes__", ()))


def one_line(error: BaseException) -> str:
    """Return the message of an error, shortened, on one line."""
    return (" ".join(str(error).split()) or type(error).__name__).rstrip(".")[:400]


def nearest(given: str, allowed: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the allowed word closest to `given`, or `""` when none is close."""
    close = difflib.get_close_matches(given, list(allowed), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def unknown(what: str, given: str, allowed: Iterable[str]) -> UserError:
    """Return the error for a choice that does not exist, naming the choices and the nearest of them."""
    names = sorted(allowed)
    return UserError(f"unknown {what} {given!r}: choose one of {', '.join(names)}{nearest(given, names)}")


# What PyTorch's allocators, oneDNN (which compiles a kernel when it is first needed), cuBLAS and C++ say. Only the
# first has an exception of its own, and only on a GPU.
NO_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "could not create a memory",
    "could not create a primitive",
    "ALLOC_FAILED",
    "bad_alloc",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception means that memory, of the computer or of a GPU, has run out."""
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, RuntimeError) and any(words in str(error) for words in NO_MEMORY))
    )


TORCH_SAVE = ("PytorchStreamWriter", "inline_container", "iostream error")  # its errors do not give the reason
# No space, no quota, a file larger than allowed, a disk that may not be written to or has failed.
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


def write_failure(error: BaseException) -> str | None:
    """Return why a file could not be written, as the system says it; None if the exception means something else."""
    if isinstance(error, OSError):
        is_cut = error.strerror is None and "requested" in str(error)  # numpy: 24019 requested and 0 written
        return "it could not be written to its end" if is_cut else error.strerror or str(error)
    if number := re.search(r"\(os error (\d+)\)", str(error)):  # safetensors
        return os.strerror(int(number[1]))
    if any(words in str(error) for words in TORCH_SAVE):
        return "it could not be written to its end"
    return None


@contextlib.contextmanager
def write_errors(what: object, advice: str = "") -> Iterator[None]:
    """Turn a failure to write `what` into a UserError with an `advice`.

    By default that is to free some space, if it may help, or to choose another folder.
    """
    try:
        yield
    except (BrokenPipeError, UserError):
        raise
    except Exception as error:
        reason = write_failure(error)
        if reason is None:
            raise
        in_the_way = isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError | PermissionError)
        default = "choose another folder" if in_the_way else "free some space, or choose another folder"
        raise UserError(f"cannot write {what}: {reason}; {advice or default}") from error
