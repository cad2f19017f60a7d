"""UserError, for wrong input and options, and messages that suggest the nearest name."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """A wrong input or option: the message says what is wrong, where, and what to do.

    The entry points print the message on standard error as one line and exit with status 2; any other exception is a
    bug and keeps its traceback.
    """


def nearest(given: str, allowed: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the allowed word closest to `given`, or `""` when none is close."""
    close = difflib.get_close_matches(given, list(allowed), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def unknown(what: str, given: str, allowed: Iterable[str]) -> UserError:
    """Return the error for a choice that does not exist, naming the choices and the nearest of them."""
    names = sorted(allowed)
    return UserError(f"unknown {what} {given!r}: choose one of {', '.join(names)}{nearest(given, names)}")
