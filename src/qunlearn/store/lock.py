"""One writer at a time: a lock on a folder that the system releases when its owner dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qunlearn.errors import UserError

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep every other process from writing to `folder` meanwhile, or say that one is at it.

    The system holds the lock for as long as the process lives: nothing is left behind by one that
    was killed but an empty file.
    """
    path = folder / LOCK
    handle = _taken(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # before it is let go, lest another process has it by then
        os.close(handle)


def _taken(path: Path) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if not _try(handle):
            os.close(handle)
            raise UserError(
                f"Another process is writing to {str(path.parent)!r}; wait for it to end, or name "
                "another folder with --out."
            )
        try:
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        except FileNotFoundError:
            pass
        os.close(handle)  # its owner ended, and took it away, between our opening and our locking


def _try(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
