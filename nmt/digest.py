"""Digests of files, by which damage is found that a file's format does not show."""

import hashlib
from pathlib import Path


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file's content in hexadecimal; a gigabyte takes about a second."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
