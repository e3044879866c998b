"""Files that code is loaded from: where nobody else can write, and checked before each use.

Everything here is for speed alone: whatever is not as it should be counts as not there.
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
    """A folder in the user's cache that nobody else can write to; None if there cannot be one.

    It is ours alone (0700). Whoever could write to a folder above it could put another in its
    place, so those must belong to us or to the administrator, too.
    """
    try:
        cache = default_cache_dir()
        if not cache.is_absolute():
            return None
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = cache.resolve() / name
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_ours_alone(folder.lstat(), stat.S_ISDIR):
            return None
        return folder if all(_is_guarded(above.lstat()) for above in folder.parents) else None
    except (OSError, RuntimeError):  # a RuntimeError where the user has no home
        return None


def load_private(folder: Path, name: str) -> Path | None:
    """The file saved under a name, if it is ours alone and complete."""
    try:
        for path in sorted(folder.glob(f"{name}.*")):
            if _is_ours_alone(path.lstat(), stat.S_ISREG):
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                if path.name == f"{name}.{digest}":
                    return path
    except OSError:
        pass
    return None


def save_private(folder: Path, name: str, content: bytes) -> None:
    """Save a file (0600) under a name; its checksum becomes part of the file's name."""
    path = folder / f"{name}.{hashlib.sha256(content).hexdigest()}"
    with suppress(OSError), opened(folder) as place:
        sweep(place)
        with replacing(path, 0o600) as file:
            file.write(content)


def _is_ours_alone(status: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    mode = status.st_mode
    return is_kind(mode) and status.st_uid == os.geteuid() and not mode & 0o077


def _is_guarded(status: os.stat_result) -> bool:
    """Whether a folder's entries can be replaced by nobody but us and the administrator."""
    closed = not status.st_mode & 0o022 or status.st_mode & stat.S_ISVTX
    return bool(closed) and status.st_uid in (0, os.geteuid())
