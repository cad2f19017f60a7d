"""How paths and times are written, and how a gzipped file, or one in UTF-16, begins."""

import codecs
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


def utf16_advice(content: bytes) -> str | None:
    """Return what text in UTF-16, whose ASCII is UTF-8 full of NULs, is, and how to convert it; None for other text.

    The first four bytes tell, without a byte order mark those of two Latin characters. Then the order has to be named:
    iconv would take that of the machine, or the other.
    """
    zeros = [byte == 0 for byte in content[:4]]
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "UTF-16"
    elif zeros in ([True, False] * 2, [False, True] * 2):
        encoding = "UTF-16BE" if zeros[0] else "UTF-16LE"
    else:
        return None
    return f"not UTF-8 but UTF-16: convert it, with iconv -f {encoding} -t UTF-8"
