"""The user's own folder of secrets: one for each data set, so that its runs share one.

It only makes runs comparable: each run folder has a copy of what it needs. Where no private folder
is possible, every run gets a secret of its own.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from qunlearn.store.place import opened
from qunlearn.store.private import private_folder
from qunlearn.store.secret import write_secret

FOLDER = "manifest-keys"


def shared_secret(name: str, make: Callable[[], bytes]) -> bytes:
    """The secret of a name; made the first time, and then the same for all processes."""
    path = _path(name)
    if path is None:
        return make()
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with suppress(OSError):
        if not path.exists():
            write_secret(draft, make())
            with opened(path.parent) as folder:
                # Linked, not renamed: of two processes the first wins.
                with suppress(FileExistsError):
                    os.link(draft.name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
                os.unlink(draft.name, dir_fd=folder)
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and not status.st_mode & 0o077:
            return path.read_bytes()
    return make()


def replace_secret(name: str, change: Callable[[bytes], bytes]) -> None:
    """Replace the secret of a name, if there is one."""
    path = _path(name)
    if path is not None and path.is_file() and not path.is_symlink():
        write_secret(path, change(path.read_bytes()))


def _path(name: str) -> Path | None:
    folder = private_folder(FOLDER)
    digest = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
    return None if folder is None else folder / f"{digest}.json"
