"""One writer at a time: a lock on a folder that the system releases when its owner dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.store.files import writing

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep every other process from writing to `folder` meanwhile, or say that one is at it.

    The system holds the lock for as long as the process lives: nothing is left behind by one that
    was killed but an empty file.
    """
    path = folder / LOCK
    with writing(path):
        handle = _taken(path)
    try:
        yield
    finally:
        with suppress(OSError):  # a file that stays does no harm
            path.unlink()  # before it is let go, lest another process has it by then
        with suppress(OSError):
            os.close(handle)


def check_unlocked(folder: Path) -> None:
    """Raise if another process is writing to `folder`."""
    path = folder / LOCK
    if path.is_file():
        handle = os.open(path, os.O_RDWR)
        try:
            if not _try(handle):
                raise _held(folder)
        finally:
            os.close(handle)


def _held(folder: Path) -> UserError:
    return UserError(
        f"Another process is writing to {str(folder)!r}; wait for it to end, or name another "
        "folder with --out."
    )


def _taken(path: Path) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if not _try(handle):
            os.close(handle)
            raise _held(path.parent)
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
