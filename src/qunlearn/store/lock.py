"""One writer at a time: a lock on a folder that the system releases when its owner dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.store.files import try_lock, writing
from qunlearn.store.place import FILE, kind_of, open_own, opened

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep every other process from writing to `folder` meanwhile, or say that one is at it.

    The system holds the lock for as long as the process lives: nothing is left behind by one that
    was killed but an empty file.
    """
    with writing(folder / LOCK), opened(folder) as place:
        handle = _taken(folder, place)
    try:
        yield
    finally:
        with suppress(OSError, UserError), opened(folder) as place:  # one that stays does no harm
            os.unlink(LOCK, dir_fd=place)  # before it is let go, lest another process has it then
        with suppress(OSError):
            os.close(handle)


def check_unlocked(folder: Path) -> None:
    """Raise if another process is writing to `folder`."""
    path = folder / LOCK
    if kind_of(path) == FILE:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            if not try_lock(handle):
                raise _held(folder)
        finally:
            os.close(handle)


def _held(folder: Path) -> UserError:
    return UserError(
        f"Another process is writing to {str(folder)!r}; wait for it to end, or name another "
        "folder with --out."
    )


def _taken(folder: Path, place: int) -> int:
    while True:
        handle = open_own(folder / LOCK, os.O_RDWR | os.O_CREAT, place)
        if not try_lock(handle):
            os.close(handle)
            raise _held(folder)
        with suppress(FileNotFoundError):
            there = os.stat(LOCK, dir_fd=place, follow_symlinks=False)
            if os.path.samestat(os.fstat(handle), there):
                return handle
        os.close(handle)  # its owner ended, and took it away, between our opening and our locking
