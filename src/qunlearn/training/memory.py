"""Freed memory is kept between steps: to fetch it from the system anew takes time."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as in glibc's malloc.h
NEVER, MIB = -1, 1 << 20

_inside: list[None] = []
"""The blocks under way, in whatever thread; the last to end gives the memory back."""
_counting = threading.Lock()


@contextmanager
def keeping_memory() -> Iterator[None]:
    """Within the block the C library keeps what is freed for what comes; after it, gives it back.

    A training step frees what it kept for backward, and glibc hands the top of its heap back to
    the system each time: the next step then waits for thousands of pages. Other C libraries have no
    such switch, and nothing changes there.
    """
    libc = _glibc()
    if libc is None:
        yield
        return
    with _counting:
        _inside.append(None)
        libc.mallopt(M_MMAP_THRESHOLD, 32 * MIB)  # the most that it takes
        libc.mallopt(M_TRIM_THRESHOLD, NEVER)
    try:
        yield
    finally:
        with _counting:
            _inside.pop()
            if not _inside:
                libc.mallopt(M_TRIM_THRESHOLD, 64 * MIB)  # the most that it comes to by itself
                libc.malloc_trim(0)


def _glibc() -> Any:
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
