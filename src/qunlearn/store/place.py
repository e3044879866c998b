"""Where files may be written: below a folder that the user named, and through no link there.

A run or a comparison may come from a stranger, with links planted in it. The folder that the user
named may itself be reached through a link; below it every folder is opened by descriptor, one by
one, and a link on the way is refused. What a descriptor leads to cannot be exchanged afterwards.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from qunlearn.errors import UserError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

FILE, FOLDER = "a file", "a folder"
KINDS = {
    stat.S_IFREG: FILE,
    stat.S_IFDIR: FOLDER,
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
"""What can stand at a path, as messages call it."""

_named: ContextVar[tuple[Path, ...]] = ContextVar("named", default=())


@contextmanager
def named(*folders: Path) -> Iterator[None]:
    """Say that the user named these folders: within the block, no link below them is followed.

    Of folders that are within each other, the outermost counts.
    """
    before = _named.set((*_named.get(), *(folder.absolute() for folder in folders)))
    try:
        yield
    finally:
        _named.reset(before)


def named_folders() -> tuple[Path, ...]:
    """The folders that the user named, to be handed on to another process."""
    return _named.get()


def set_named(folders: tuple[Path, ...]) -> None:
    """Take over the folders that the user named to the process that started this one."""
    _named.set(folders)


def _way(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """The named folder that a folder is below, and the names on the way from there."""
    folder = folder.absolute()
    # One that is below none is taken for named: the user typed it, as the folder of an export.
    root = next((each for each in _named.get() if folder.is_relative_to(each)), folder)
    names = folder.relative_to(root).parts
    if ".." in names:
        raise ValueError(f"a way out of {str(root)!r}: {str(folder)!r}")
    return root, names


@contextmanager
def opened(folder: Path, make: bool = False) -> Iterator[int]:
    """A descriptor of a folder to write in; with `make`, the folder is made if it is missing."""
    root, names = _way(folder)
    if make:
        root.mkdir(parents=True, exist_ok=True)
    handle = os.open(root, _FOLDER)
    try:
        here = root
        for name in names:
            here = here / name
            if make:
                make_one(name, handle)
            check_kind(here, FOLDER)
            below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            handle, above = below, handle
            _close(above)
        yield handle
    finally:
        _close(handle)


def _close(handle: int) -> None:
    with suppress(OSError):  # nothing was written to it that could be lost
        os.close(handle)


def make_one(name: str, handle: int) -> None:
    """Make one folder in an opened one, unless it is there."""
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=handle)


def names_in(handle: int) -> list[str]:
    """What is in an opened folder."""
    return os.listdir(handle)


def check_reached(folder: Path) -> None:
    """Raise if a link stands on the way from the named folder to `folder`, or in its place."""
    here, names = _way(folder)
    for name in names:
        here = here / name
        check_kind(here, FOLDER)


def open_own(path: Path, flags: int, handle: int) -> int:
    """Open, or create, a regular file in the folder that was opened; refuse anything else there."""
    check_kind(path, FILE)  # before it is opened: opening a device can have effects
    file = os.open(path.name, flags | _PLAIN, 0o666, dir_fd=handle)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _refused(path, "no regular file")
    return file


def check_kind(path: Path, wanted: str) -> None:
    """Raise if something else than a FILE or a FOLDER is at `path`; nothing at all is fine."""
    kind = kind_of(path)
    if kind not in (None, wanted):
        raise _refused(path, kind)


def kind_of(path: Path, follow: bool = False) -> str | None:
    """What is at `path`, in a word; None if nothing is."""
    try:
        mode = path.stat().st_mode if follow else path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return KINDS.get(stat.S_IFMT(mode), "a special file")


def _refused(path: Path, kind: str) -> UserError:
    return UserError(
        f"{str(path)!r} is {kind}, and qunlearn writes nothing through it; move it away."
    )
