"""The C library's heap: memory that is freed stays with the process."""

import ctypes
import sys

KEPT = 2**30  # bytes
LARGEST = 2**25  # bytes of a block on the heap, the largest that glibc allows: larger ones are mapped one by one
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)


def keep_freed_memory() -> None:
    """Let the next update use the memory of the last, where the C library is glibc; nothing is done elsewhere.

    By default what is freed at the end of the heap goes back to the system. Fresh pages then have to be cleared, while
    the other threads wait for them.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, KEPT)
        mallopt(M_MMAP_THRESHOLD, LARGEST)
