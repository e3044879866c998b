"""A write lock on a folder; the operating system releases it when the owner exits."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.store.files import try_lock, writing
from qunlearn.store.place import FILE, kind_of, open_own, opened

LOCK = ".lock"


class Locked(UserError):
    """Another process is writing to the folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock `folder` for writing during the block; a `UserError` if another process holds the lock.

    The lock ends with the process: a killed process leaves only an empty file behind.
    """
    with writing(folder / LOCK), opened(folder) as place:
        handle = _acquire(folder, place)
    try:
        yield
    finally:
        with suppress(OSError, UserError), opened(folder) as place:  # a leftover file is harmless
            os.unlink(LOCK, dir_fd=place)  # before unlocking, so that it is not another process's
        with suppress(OSError):
            os.close(handle)


@contextmanager
def locked_in_turn(folder: Path, patience: float = 60.0) -> Iterator[None]:
    """Lock `folder` for a short while; waits up to `patience` seconds for whoever has it."""
    with ExitStack() as stack:
        until = time.monotonic() + patience
        while True:
            try:
                stack.enter_context(locked(folder))
                break
            except Locked:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)
        yield


def is_locked(folder: Path) -> bool:
    """Whether another process is writing to `folder`."""
    try:
        check_unlocked(folder)
    except Locked:
        return True
    return False


def check_unlocked(folder: Path) -> None:
    """Raise if another process is writing to `folder`."""
    path = folder / LOCK
    if kind_of(path) == FILE:
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            if not try_lock(handle):
                raise _locked_error(folder)
        finally:
            os.close(handle)


def _locked_error(folder: Path) -> Locked:
    return Locked(
        f"Another process is writing to {str(folder)!r}; wait for it to end, or name another "
        "folder with --out."
    )


def _acquire(folder: Path, place: int) -> int:
    while True:
        handle = open_own(folder / LOCK, os.O_RDWR | os.O_CREAT, place)
        if not try_lock(handle):
            os.close(handle)
            raise _locked_error(folder)
        with suppress(FileNotFoundError):
            current = os.stat(LOCK, dir_fd=place, follow_symlinks=False)
            if os.path.samestat(os.fstat(handle), current):
                return handle
        os.close(handle)  # its owner deleted it between our opening and locking it
