"""Keeps freed memory between training steps, because requesting it again is slow."""

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
"""The active blocks of all threads; the last one to end releases the memory."""
_counting = threading.Lock()


@contextmanager
def keeping_memory() -> Iterator[None]:
    """Within the block the C library reuses freed memory; afterwards it is released.

    Each training step frees its activations, and glibc returns the top of the heap to the operating
    system: the next step then waits for thousands of page faults. Other C libraries have no such
    option and are unaffected.
    """
    libc = _glibc()
    if libc is None:
        yield
        return
    with _counting:
        _inside.append(None)
        libc.mallopt(M_MMAP_THRESHOLD, 32 * MIB)  # the maximum that glibc accepts
        libc.mallopt(M_TRIM_THRESHOLD, NEVER)
    try:
        yield
    finally:
        with _counting:
            _inside.pop()
            if not _inside:
                libc.mallopt(M_TRIM_THRESHOLD, 64 * MIB)  # the maximum of glibc's own adjustment
                libc.malloc_trim(0)


def _glibc() -> Any:
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
