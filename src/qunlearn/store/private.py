"""A private cache for compiled code: writable by the user alone, and verified before each use.

It only saves time: an entry that fails a check counts as missing.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from qunlearn.store.cache import default_cache_dir
from qunlearn.store.files import replacing, sweep
from qunlearn.store.place import opened


def private_folder(name: str) -> Path | None:
    """A folder in the user's cache that nobody else can write to; None if that is impossible.

    Its mode is 0700. Write access to a parent would allow replacing it, so every parent must belong
    to the user or to root.
    """
    try:
        cache = default_cache_dir()
        if not cache.is_absolute():
            return None
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = cache.resolve() / name
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_private(folder.lstat(), stat.S_ISDIR):
            return None
        return folder if all(_is_guarded(above.lstat()) for above in folder.parents) else None
    except (OSError, RuntimeError):  # RuntimeError: the user has no home folder
        return None


def load_private(folder: Path, name: str) -> Path | None:
    """The file saved under a name, if it is private and its checksum matches."""
    try:
        for path in sorted(folder.glob(f"{name}.*")):
            if _is_private(path.lstat(), stat.S_ISREG):
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                if path.name == f"{name}.{digest}":
                    return path
    except OSError:
        pass
    return None


def save_private(folder: Path, name: str, content: bytes) -> None:
    """Save a file (mode 0600) under a name; the checksum becomes part of the file name."""
    path = folder / f"{name}.{hashlib.sha256(content).hexdigest()}"
    with suppress(OSError), opened(folder) as place:
        sweep(place)
        with replacing(path, 0o600) as file:
            file.write(content)


def _is_private(status: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    mode = status.st_mode
    return is_kind(mode) and status.st_uid == os.geteuid() and not mode & 0o077


def _is_guarded(status: os.stat_result) -> bool:
    """Whether only the user and root can replace the entries of a folder."""
    protected = not status.st_mode & 0o022 or status.st_mode & stat.S_ISVTX
    return bool(protected) and status.st_uid in (0, os.geteuid())
