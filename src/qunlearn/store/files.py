"""File access: reads are limited to regular files of bounded size, and writes are atomic."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from qunlearn.errors import Failure, UserError, lacks_memory
from qunlearn.store.limits import check_count, check_memory, largest, parse_json
from qunlearn.store.place import FILE, kind_of, names_in, open_own, opened


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an `OSError` inside the block into a `Failure` that names the path."""
    try:
        yield
    except OSError as error:
        raise Failure(
            f"{str(path)!r} could not be written: {error.strerror or error}. No partial file was "
            "left behind. Fix the cause, then run the command again."
        ) from None


WRONG = (
    *(LookupError, TypeError, ValueError, AttributeError, StopIteration, ArithmeticError),
    RuntimeError,  # raised by PyTorch for shape mismatches
)
"""Exceptions raised by using a value of the wrong type, or one that is missing."""


@contextmanager
def as_written(path: Path) -> Iterator[None]:
    """Turn errors of a block that uses the content of `path` into a `UserError` about that file.

    A file with a matching checksum may still have been forged or edited. The same errors may come
    from a mistake of ours, so the message names both.
    """
    try:
        yield
    except (UserError, Failure):
        raise
    except WRONG as error:
        if lacks_memory(error):
            raise
        raise UserError(
            f"The content of {str(path)!r} is invalid ({type(error).__name__}: {error}); create "
            "the file again. If it is as qunlearn wrote it, this is a bug: please report it."
        ) from error


UNDER_WAY = ".writing-"
"""Prefix of temporary files; a killed process leaves such files behind."""


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Open a temporary file beside `path`; on success it is flushed and renamed to `path`.

    If the block raises, the file at `path` is unchanged and the temporary file is deleted.
    """
    with opened(path.parent) as folder:
        name, handle = _temporary(folder, mode)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(handle)
                os.replace(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):  # report the first error
                os.unlink(name, dir_fd=folder)
            raise
        os.fsync(folder)


def _temporary(folder: int, mode: int) -> tuple[str, int]:
    """Create a temporary file, locked while its writer lives; see `sweep`."""
    while True:
        name = UNDER_WAY + secrets.token_hex(8)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(name, flags, mode, dir_fd=folder)
        try:
            locked = try_lock(handle)
        except OSError:  # a file system without locks: `sweep` deletes nothing there
            locked = True
        if locked and os.fstat(handle).st_nlink:
            return name, handle
        os.close(handle)  # deleted by `sweep` before it was locked


@contextmanager
def marker_file(folder: Path) -> Iterator[Path]:
    """A file of a random name within the block: who sees it, has this folder.

    Those of killed processes are deleted.
    """
    with writing(folder), opened(folder, make=True) as place:
        sweep(place)
        name, handle = _temporary(place, 0o600)
    try:
        yield folder / name
    finally:
        with suppress(OSError, UserError), opened(folder) as place:
            os.unlink(name, dir_fd=place)
        with suppress(OSError):
            os.close(handle)


def sweep(folder: int) -> None:
    """Delete temporary files of killed writers in an open folder; those in use stay."""
    for name in names_in(folder):
        if not name.startswith(UNDER_WAY):
            continue
        with suppress(OSError):  # already deleted, or owned by another user
            handle = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            try:
                if stat.S_ISREG(os.fstat(handle).st_mode) and try_lock(handle):
                    os.unlink(name, dir_fd=folder)
            finally:
                os.close(handle)


def try_lock(handle: int) -> bool:
    """Lock an open file until it is closed; False if another process holds the lock.

    Locks the descriptor, because filelock would follow symbolic links when opening the path.
    """
    from filelock import lock_descriptor

    return lock_descriptor(handle, blocking=False)


def write_bytes(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write `content` to `path`, atomically, with `mode` restricted by the umask."""
    with writing(path), replacing(path, mode) as file:
        file.write(content)


def append_line(path: Path, line: str) -> None:
    """Append a line to the file at `path`, and flush it to disk."""
    with writing(path), opened(path.parent) as folder:
        handle = open_own(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, folder)
        with os.fdopen(handle, "a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(handle)


def remove(path: Path) -> None:
    """Delete the file at `path` if it exists; a symbolic link itself, not its target."""
    with writing(path), opened(path.parent) as folder, suppress(FileNotFoundError):
        os.unlink(path.name, dir_fd=folder)


def make_folder(path: Path) -> None:
    """Create an output folder if it does not exist."""
    try:
        with opened(path, make=True):
            pass
    except OSError as error:
        raise UserError(
            f"The output folder {str(path)!r} cannot be created: {error.strerror}; name another "
            "one with --out."
        ) from None


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` as UTF-8, atomically."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` as indented JSON, atomically."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """Serialise a value as indented JSON."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path) -> Any:
    """Read a JSON file; an invalid one is a `UserError`."""
    return read(path, parse_json, "JSON")


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file whose top level is an object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise UserError(
            f"The file {str(path)!r} is damaged: its top level is not a JSON object; restore it "
            "from a copy."
        )
    return value


def read(
    path: Path,
    parse: Callable[[str], Any],
    kind: str,
    decode: Callable[[bytes], str] = bytes.decode,
) -> Any:
    """Read a text file and parse it; a missing, unreadable or malformed one is a `UserError`."""
    max_bytes = largest(path, kind)
    with reading(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise UserError(
            f"The file {str(path)!r} has more than {max_bytes:,} bytes, the limit for such "
            "files; name a smaller one."
        )
    try:
        if kind in ("CSV", "text"):
            check_count(content.count(b"\n"), "lines")
        text = decode(content)
        del content
        check_memory(text)
        return parse(text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"The file {str(path)!r} is not valid {kind}: {error}; correct it, or restore it from "
            "a copy."
        ) from None


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file for reading; a pipe or a device could block for ever."""
    try:
        check_regular(path)
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            yield file
    except FileNotFoundError:
        raise UserError(f"There is no file {str(path)!r}; check the path.") from None
    except UserError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise UserError(
            f"The file {str(path)!r} cannot be read: {error}; check the path and its permissions."
        ) from None


def check_regular(path: Path) -> None:
    """Raise if `path` exists, after following links, and is not a regular file."""
    kind = kind_of(path, follow=True)
    if kind not in (None, FILE):
        raise UserError(f"{str(path)!r} is {kind}, not a regular file; name a file.")


def sha256(path: Path) -> str:
    """The SHA-256 of a file, as hex digits."""
    digest = hashlib.sha256()
    with reading(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def new_folder(prefix: str) -> Path:
    """Create an empty temporary folder."""
    with writing(Path(tempfile.gettempdir())):
        return Path(tempfile.mkdtemp(prefix=prefix))
