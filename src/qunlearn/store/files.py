"""Files that are there whole or not at all: temporary name, flush, rename."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qunlearn.errors import UserError

UNDER_WAY = ".writing-"
"""What the names of files begin with that are being written; killed processes leave such."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; on success it is flushed and takes `path`'s place.

    A failure inside the block leaves whatever stood at `path` before, and no rubbish.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=UNDER_WAY)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _flush(temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
        _flush(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path`, atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` as UTF-8, atomically."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file, or say in one sentence what is wrong with it."""
    return read(path, lambda text: json.loads(text), "JSON")


def read(path: Path, parse: Callable[[str], Any], kind: str) -> Any:
    """Read a text file and parse it; a missing, unreadable or malformed one is a `UserError`."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"There is no file {str(path)!r}; check the path.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The file {str(path)!r} cannot be read: {error}.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"The file {str(path)!r} is not valid {kind}: {error}.") from None


def sha256(path: Path) -> str:
    """A file's checksum."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
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
    return Path(tempfile.mkdtemp(prefix=prefix))
