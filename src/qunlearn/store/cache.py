"""A disk cache for arrays larger than memory: written once, then memory-mapped."""

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
"""Permissions: cached images may be personal data, so only the user can read them."""


def default_cache_dir() -> Path:
    """`qunlearn` in the user's cache folder, by the XDG standard."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qunlearn"


def memory_mapped(
    folder: Path,
    name: str,
    key: str,
    shape: tuple[int, ...],
    rows: Iterable[Bytes],
    notes: Callable[[], Any],
) -> tuple[Bytes, Any]:
    """Memory-map a uint8 array from the cache; write it first if it is not there.

    A cache that is incomplete, corrupt or of another key is rewritten. Caches of the same name
    under other keys are deleted, so that erased samples do not survive in them.

    Args:
        folder: The cache folder.
        name: Identifies the source of the data, such as a folder of images.
        key: Identifies the content of the source; changes whenever that changes.
        shape: Shape of the complete array.
        rows: The array in consecutive blocks along its first axis; read only on a cache miss.
        notes: Returns JSON to save with the array; called after all rows were read.

    Returns:
        The array, mapped copy-on-write, and the notes.
    """
    target = folder / f"{name}.{key}.npy"
    notes_path = target.with_suffix(".json")
    with suppress(OSError):  # another user's cache can still be read
        folder.chmod(PRIVATE)
    cached = _load(target, notes_path, shape)
    if cached is not None:
        return cached
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(PRIVATE, exist_ok=True)
        need, free = math.prod(shape), shutil.disk_usage(folder).free
        if need > free:
            raise UserError(
                f"The decoded images need {need:,} bytes in {str(folder)!r}, where {free:,} are "
                "free; free some space, or name another folder with --cache-dir."
            )
        drop_cache(folder, name)
        _write(target, shape, rows)
        # Written last: an array without its notes is incomplete.
        write_bytes(notes_path, json_text({"notes": notes()}).encode(), PRIVATE_FILE)
    except OSError as error:
        raise UserError(
            f"The cache in {str(folder)!r} cannot be written: {error}; name another folder with "
            "--cache-dir."
        ) from None
    cached = _load(target, notes_path, shape)
    if cached is None:
        raise Failure(f"The cache {str(target)!r} was written but cannot be read; try again.")
    return cached


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


def _load(target: Path, notes_path: Path, shape: tuple[int, ...]) -> tuple[Bytes, Any] | None:
    try:
        notes = read_json(notes_path)["notes"]
        check_regular(target)
        # Writable but private ("c"): torch warns of arrays that it cannot write to.
        array = np.load(target, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, KeyError, TypeError, EOFError, RecursionError):
        return None
    if not isinstance(array, np.memmap) or array.shape != shape or array.dtype != np.uint8:
        return None
    return array, notes
