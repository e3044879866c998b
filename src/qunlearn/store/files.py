"""Files that are there whole or not at all: temporary name, flush, rename."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from qunlearn.errors import Failure, UserError

LARGEST_TEXT = 1 << 28  # bytes of a text file: beyond, it is no text that anybody wrote


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


UNDER_WAY = ".writing-"
"""What the names of files begin with that are being written; killed processes leave such."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; on success it is flushed and takes `path`'s place.

    A failure inside the block leaves whatever stood at `path` before, and no rubbish.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=UNDER_WAY)
    temporary = Path(name)
    try:
        os.close(handle)
        yield temporary
        _flush(temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):  # what went wrong first is what is to be told
            temporary.unlink(missing_ok=True)
        raise
    _flush(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path`, atomically."""
    with writing(path), replacing(path) as temporary:
        temporary.write_bytes(content)


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
    return read(path, json.loads, "JSON")


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds names and values."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise UserError(
            f"The file {str(path)!r} is damaged: it does not hold names and values; "
            "restore it from a copy."
        )
    return value


def read(path: Path, parse: Callable[[str], Any], kind: str) -> Any:
    """Read a text file and parse it; a missing, unreadable or malformed one is a `UserError`."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_TEXT + 1)
    except FileNotFoundError:
        raise UserError(f"There is no file {str(path)!r}; check the path.") from None
    except (OSError, ValueError) as error:  # a ValueError for a path that no system can have
        raise UserError(
            f"The file {str(path)!r} cannot be read: {error}; check the path and its permissions."
        ) from None
    if len(content) > LARGEST_TEXT:
        raise UserError(
            f"The file {str(path)!r} has more than {LARGEST_TEXT:,} bytes, and is not read; name a "
            "smaller one."
        )
    try:
        return parse(content.decode())
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"The file {str(path)!r} is not valid {kind}: {error}; mend it, or restore it from a "
            "copy."
        ) from None


def sha256(path: Path) -> str:
    """A file's checksum."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise UserError(
            f"The file {str(path)!r} cannot be read: {error.strerror}; check its permissions."
        ) from None
    return digest.hexdigest()


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def new_folder(prefix: str) -> Path:
    """A new, empty folder among the temporary files."""
    with writing(Path(tempfile.gettempdir())):
        return Path(tempfile.mkdtemp(prefix=prefix))
