"""Arrays larger than memory: written once, row by row, then mapped from disk."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qunlearn.errors import Failure, UserError
from qunlearn.store.files import (
    check_regular,
    json_text,
    read_json,
    replacing,
    sweep,
    write_bytes,
)
from qunlearn.store.place import names_in, opened

Bytes = NDArray[np.uint8]
PRIVATE, PRIVATE_FILE = 0o700, 0o600
"""Who may look: the images are other people's data, and stay their user's alone."""


def default_cache_dir() -> Path:
    """`qunlearn` in the user's cache folder, as the XDG standard has it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qunlearn"


def memory_mapped(
    folder: Path,
    name: str,
    key: str,
    shape: tuple[int, ...],
    rows: Iterable[Bytes],
    notes: Callable[[], Any],
) -> tuple[Bytes, Any]:
    """Map an array of bytes from the cache, writing it first if need be.

    A cache that is incomplete, damaged or made under another key is written anew; what other keys
    have left under the same name is deleted, so that erased samples do not live on in it.

    Args:
        folder: Where the cache is.
        name: Whose it is: the same name for the same place of origin.
        key: Changes when the origin has changed.
        shape: Of the whole array.
        rows: The array in consecutive blocks along its first axis; only read if need be.
        notes: What to keep beside the array, as JSON; called when all rows were read.

    Returns:
        The array, which can be read and privately written to, and the notes.
    """
    target = folder / f"{name}.{key}.npy"
    mark = target.with_suffix(".json")
    with suppress(OSError):  # it may be another's, to be read only
        folder.chmod(PRIVATE)
    found = _load(target, mark, shape)
    if found is not None:
        return found
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(PRIVATE, exist_ok=True)
        need, free = math.prod(shape), shutil.disk_usage(folder).free
        if need > free:
            raise UserError(
                f"The decoded images need {need:,} bytes in {str(folder)!r}, where {free:,} are "
                "free; make room, or name another folder with --cache-dir."
            )
        drop_cache(folder, name)
        _write(target, shape, rows)
        # The mark comes last: an array without one was not finished.
        write_bytes(mark, json_text({"notes": notes()}).encode(), PRIVATE_FILE)
    except OSError as error:
        raise UserError(
            f"The cache in {str(folder)!r} cannot be written: {error}; name another folder with "
            "--cache-dir."
        ) from None
    found = _load(target, mark, shape)
    if found is None:
        raise Failure(f"The cache {str(target)!r} was written but cannot be read; try again.")
    return found


def drop_cache(folder: Path, name: str) -> None:
    """Delete whatever is cached under a name, and what killed writers left of any."""
    if not folder.is_dir():
        return
    with opened(folder) as handle:
        sweep(handle)
        for old in names_in(handle):
            if old.startswith(f"{name}."):
                with suppress(FileNotFoundError):
                    os.unlink(old, dir_fd=handle)


def _write(target: Path, shape: tuple[int, ...], rows: Iterable[Bytes]) -> None:
    with replacing(target, PRIVATE_FILE) as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        count = 0
        # Written, not mapped: a full disk is then an error rather than a bus error.
        for block in rows:
            if block.shape[1:] != shape[1:] or block.dtype != np.uint8:
                raise ValueError(f"a block {block.shape} of {block.dtype} in an array {shape}")
            file.write(np.ascontiguousarray(block).data)
            count += len(block)
        if count != shape[0]:
            raise ValueError(f"{count} rows came for an array {shape}")


def _load(target: Path, mark: Path, shape: tuple[int, ...]) -> tuple[Bytes, Any] | None:
    try:
        notes = read_json(mark)["notes"]
        check_regular(target)
        # Writable but private ("c"): torch warns of arrays that it cannot write to.
        array = np.load(target, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, KeyError, TypeError, EOFError, RecursionError):
        return None
    if not isinstance(array, np.memmap) or array.shape != shape or array.dtype != np.uint8:
        return None
    return array, notes
