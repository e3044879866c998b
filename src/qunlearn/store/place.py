"""Safe output paths: writes stay below a folder that the user named and follow no symbolic link.

A run or a comparison may come from an untrusted source, with links planted in it. The folder that
the user named may be a link. Below it every folder is opened by descriptor, one by one, and a link
is refused. A descriptor cannot be redirected afterwards.
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
"""File types, as messages call them."""

_named: ContextVar[tuple[Path, ...]] = ContextVar("named", default=())


@contextmanager
def named(*folders: Path) -> Iterator[None]:
    """Declare that the user named these folders: within the block, no link below them is followed.

    Of nested folders, the outermost counts.
    """
    before = _named.set((*_named.get(), *(folder.absolute() for folder in folders)))
    try:
        yield
    finally:
        _named.reset(before)


def named_folders() -> tuple[Path, ...]:
    """The folders that the user named, for passing on to a child process."""
    return _named.get()


def set_named(folders: tuple[Path, ...]) -> None:
    """Set the folders that the user named, in a child process."""
    _named.set(folders)


def _relative(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Split a path into the named folder that contains it and the components below that."""
    folder = folder.absolute()
    # A folder outside all named ones counts as named: the user typed it, as for an export.
    root = next((each for each in _named.get() if folder.is_relative_to(each)), folder)
    names = folder.relative_to(root).parts
    if ".." in names:
        raise ValueError(f"the path {str(folder)!r} leaves {str(root)!r}")
    return root, names


@contextmanager
def opened(folder: Path, make: bool = False) -> Iterator[int]:
    """Open a folder to write in, as a descriptor; `make` creates missing folders."""
    root, names = _relative(folder)
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
            child = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            handle, parent = child, handle
            _close(parent)
        yield handle
    finally:
        _close(handle)


def _close(handle: int) -> None:
    with suppress(OSError):  # a folder has no unwritten data to lose
        os.close(handle)


def make_one(name: str, handle: int) -> None:
    """Create a folder inside an open one if it does not exist."""
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=handle)


def names_in(handle: int) -> list[str]:
    """The names in an open folder."""
    return os.listdir(handle)


def check_reached(folder: Path) -> None:
    """Raise if `folder`, or a folder between it and the named one, is a symbolic link."""
    here, names = _relative(folder)
    for name in names:
        here = here / name
        check_kind(here, FOLDER)


def open_own(path: Path, flags: int, handle: int) -> int:
    """Open or create a regular file in an open folder; any other kind of file is refused."""
    check_kind(path, FILE)  # before it is opened: opening a device can have effects
    file = os.open(path.name, flags | _PLAIN, 0o666, dir_fd=handle)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _refused(path, "not a regular file")
    return file


def check_kind(path: Path, expected: str) -> None:
    """Raise if `path` exists and is not of the expected kind, FILE or FOLDER."""
    kind = kind_of(path)
    if kind not in (None, expected):
        raise _refused(path, kind)


def kind_of(path: Path, follow: bool = False) -> str | None:
    """The kind of file at `path`; None if it does not exist."""
    try:
        mode = path.stat().st_mode if follow else path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return KINDS.get(stat.S_IFMT(mode), "a special file")


def _refused(path: Path, kind: str) -> UserError:
    return UserError(
        f"{str(path)!r} is {kind}, and qunlearn writes nothing through it; move it away."
    )
