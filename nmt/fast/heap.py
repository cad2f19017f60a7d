"""The C library's heap: memory that is freed stays with the process."""

import ctypes
import sys

KEPT_BYTES = 2**30  # bytes
LARGEST_BLOCK = 2**25  # bytes on the heap, the most that glibc allows: larger blocks are mapped one by one
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)


def keep_freed_memory() -> None:
    """Let the next update use the memory of the last, where the C library is glibc; nothing is done elsewhere.

    By default what is freed at the end of the heap goes back to the system. Fresh pages then have to be cleared, while
    the other threads wait for them.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(M_MMAP_THRESHOLD, LARGEST_BLOCK)
