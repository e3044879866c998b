"""Files that only their owner may read: private keys, and what links samples to people."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from qunlearn.errors import UserError
from qunlearn.store.files import reading, write_bytes
from qunlearn.store.place import kind_of

MODE = 0o600
LARGEST_KEY = 1 << 16
"""Maximum bytes of a key or a certificate."""


def write_secret(path: Path, content: bytes) -> None:
    """Write a file of mode 0600, atomically."""
    write_bytes(path, content, MODE)


def check_new(*paths: Path) -> None:
    """Raise if one of the files exists: a key is never overwritten."""
    for path in paths:
        if kind_of(path) is not None:
            raise UserError(
                f"{str(path)!r} exists, and a key is never overwritten; choose another name."
            )
        if not path.parent.is_dir():
            raise UserError(f"There is no folder {str(path.parent)!r}; create it first.")


def read_key(path: Path, *, secret: bool) -> bytes:
    """Read a key file; a `secret` one is refused if anybody but its owner can read it."""
    with reading(path) as file:
        status = os.fstat(file.fileno())
        content = file.read(LARGEST_KEY + 1)
    if secret and stat.S_IMODE(status.st_mode) & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise UserError(
            f"The private key {str(path)!r} can be read by others (mode {mode:04o}); run: chmod "
            f"600 {path}. If others may have copied it, make a new one with `qunlearn keys new`."
        )
    if len(content) > LARGEST_KEY:
        raise UserError(f"{str(path)!r} is too large for a key; name a PEM file.")
    return content
