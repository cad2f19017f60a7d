"""How paths and times are written, and how a gzipped file begins."""

from pathlib import Path

GZIP_MAGIC = b"\x1f\x8b"


def from_here(path: Path) -> Path:
    """Return a path relative to the working directory, if it is below that."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def duration(seconds: float | None) -> str:
    """Return seconds as `m:ss` or `h:mm:ss`, or `?` if unknown."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
