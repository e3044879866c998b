"""Files: read if they are regular and not too large, written whole or not at all."""

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

from qunlearn.errors import Failure, UserError
from qunlearn.store.limits import check_count, check_memory, largest, parse_json
from qunlearn.store.place import FILE, kind_of, names_in, open_own, opened


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say in one sentence what the disk refuses inside the block: it is full, gone or closed."""
    try:
        yield
    except OSError as error:
        raise Failure(
            f"{str(path)!r} could not be written: {error.strerror or error}; nothing half-written "
            "is kept. Mend that, and give the command again."
        ) from None


WRONG = (
    *(LookupError, TypeError, ValueError, AttributeError, StopIteration, ArithmeticError),
    RuntimeError,  # PyTorch's word for shapes that do not fit
)
"""What using a value raises that is not of the kind, or not where, it should be."""


@contextmanager
def as_written(path: Path) -> Iterator[None]:
    """Say in one sentence, of a block that uses what `path` holds, that it is not as expected.

    What a checksum agrees with may still come from somebody who means harm, or knows no better.
    """
    try:
        yield
    except (UserError, Failure):
        raise
    except WRONG as error:
        raise UserError(
            f"{str(path)!r} does not hold what qunlearn writes ({type(error).__name__}: {error}); "
            "restore it from a copy, or make it again."
        ) from None


Row = dict[str, Any]
"""A line of the history: numbers by name."""

UNDER_WAY = ".writing-"
"""What the names of files begin with that are being written; killed processes leave such."""


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Give a temporary file beside `path`; on success it is flushed and takes `path`'s place.

    A failure inside the block leaves whatever stood at `path` before, and no rubbish.
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
            with suppress(OSError):  # what went wrong first is what is to be told
                os.unlink(name, dir_fd=folder)
            raise
        os.fsync(folder)


def _temporary(folder: int, mode: int) -> tuple[str, int]:
    """A new file, locked for as long as its writer lives; see `sweep`."""
    while True:
        name = UNDER_WAY + secrets.token_hex(8)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(name, flags, mode, dir_fd=folder)
        try:
            mine = try_lock(handle)
        except OSError:  # a file system without locks, where nothing is swept
            mine = True
        if mine and os.fstat(handle).st_nlink:
            return name, handle
        os.close(handle)  # swept between our making and our locking it


def sweep(folder: int) -> None:
    """Delete what killed writers left in an opened folder; what a living one is at stays."""
    for name in names_in(folder):
        if not name.startswith(UNDER_WAY):
            continue
        with suppress(OSError):  # gone meanwhile, or none of ours
            handle = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            try:
                if stat.S_ISREG(os.fstat(handle).st_mode) and try_lock(handle):
                    os.unlink(name, dir_fd=folder)
            finally:
                os.close(handle)


def try_lock(handle: int) -> bool:
    """Lock an open file for as long as it is open; False if another process has it.

    By its descriptor: filelock's own opening of files goes through links on the way.
    """
    from filelock import lock_descriptor

    return lock_descriptor(handle, blocking=False)


def write_bytes(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write `content` to `path`, atomically; less of the `mode` what the user's umask withholds."""
    with writing(path), replacing(path, mode) as file:
        file.write(content)


def append_line(path: Path, line: str) -> None:
    """Add a line to the file at `path`, and flush it."""
    with writing(path), opened(path.parent) as folder:
        handle = open_own(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, folder)
        with os.fdopen(handle, "a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(handle)


def remove(path: Path) -> None:
    """Delete the file at `path`, if there is one; of a link, the link."""
    with writing(path), opened(path.parent) as folder, suppress(FileNotFoundError):
        os.unlink(path.name, dir_fd=folder)


def make_folder(path: Path) -> None:
    """Make a folder for output, unless it is there."""
    try:
        with opened(path, make=True):
            pass
    except OSError as error:
        raise UserError(
            f"The output folder {str(path)!r} cannot be made: {error.strerror}; name another one "
            "with --out."
        ) from None


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` as UTF-8, atomically."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` as indented JSON, atomically."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """A value as indented JSON."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(path: Path) -> Any:
    """Read a JSON file, or say in one sentence what is wrong with it."""
    return read(path, parse_json, "JSON")


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds names and values."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise UserError(
            f"The file {str(path)!r} is damaged: it does not hold names and values; "
            "restore it from a copy."
        )
    return value


def read(
    path: Path,
    parse: Callable[[str], Any],
    kind: str,
    decode: Callable[[bytes], str] = bytes.decode,
) -> Any:
    """Read a text file and parse it; a missing, unreadable or malformed one is a `UserError`."""
    most = largest(path, kind)
    with reading(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise UserError(
            f"The file {str(path)!r} has more than {most:,} bytes, and is not read; name a smaller "
            "one."
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
            f"The file {str(path)!r} is not valid {kind}: {error}; mend it, or restore it from a "
            "copy."
        ) from None


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file to be read: a pipe or a device could keep us waiting for ever."""
    try:
        check_regular(path)
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            yield file
    except FileNotFoundError:
        raise UserError(f"There is no file {str(path)!r}; check the path.") from None
    except UserError:
        raise
    except (OSError, ValueError) as error:  # a ValueError for a path that no system can have
        raise UserError(
            f"The file {str(path)!r} cannot be read: {error}; check the path and its permissions."
        ) from None


def check_regular(path: Path) -> None:
    """Raise if there is something at `path`, or where a link there leads, that is no file."""
    kind = kind_of(path, follow=True)
    if kind not in (None, FILE):
        raise UserError(f"{str(path)!r} is {kind}, not a regular file; name a file.")


def sha256(path: Path) -> str:
    """A file's checksum."""
    digest = hashlib.sha256()
    with reading(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def new_folder(prefix: str) -> Path:
    """A new, empty folder among the temporary files."""
    with writing(Path(tempfile.gettempdir())):
        return Path(tempfile.mkdtemp(prefix=prefix))
