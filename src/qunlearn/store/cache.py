"""A disk cache for arrays larger than memory: written once, then memory-mapped."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False)
class Cached:
    """An array in the cache.

    Attributes:
        path: Its file.
        array: The array, mapped copy-on-write.
        digest: The BLAKE2b digest of its bytes, as hex digits.
        notes: The JSON that was saved with it.
    """

    path: Path
    array: Bytes
    digest: str
    notes: Any


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
    *,
    verify: bool = False,
) -> Cached:
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
        verify: Whether `rows` are read on a hit too, and compared with the digest: for a key that
            does not change with every byte of the content. They may then be read twice.
    """
    target = folder / f"{name}.{key}.npy"
    with suppress(OSError):  # another user's cache can still be read
        folder.chmod(PRIVATE)
    cached = open_cached(target, shape)
    if cached is not None and not (verify and _digest(rows) != cached.digest):
        return cached
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(PRIVATE, exist_ok=True)
        check_space(folder, math.prod(shape))
        drop_cache(folder, name)
        digest = _write(target, shape, rows)
        # Written last: an array without its notes is incomplete.
        record = {"notes": notes(), "digest": digest}
        write_bytes(_notes_path(target), json_text(record).encode(), PRIVATE_FILE)
    except OSError as error:
        raise UserError(
            f"The cache in {str(folder)!r} cannot be written: {error}; name another folder with "
            "--cache-dir."
        ) from None
    cached = open_cached(target, shape)
    if cached is None:
        raise Failure(f"The cache {str(target)!r} was written but cannot be read; try again.")
    return cached


def check_space(folder: Path, needed: int) -> None:
    """Raise unless so many bytes are free where the cache is."""
    place = folder
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed > free:
        raise UserError(
            f"The decoded images need {needed:,} bytes in {str(folder)!r}, where {free:,} are "
            "free; free some space, or name another folder with --cache-dir."
        )


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


def open_cached(target: Path, shape: tuple[int, ...]) -> Cached | None:
    """Map a cached array; None if it is missing, incomplete or corrupt."""
    try:
        record = read_json(_notes_path(target))
        notes, digest = record["notes"], str(record["digest"])
        check_regular(target)
        # Writable but private ("c"): torch warns of arrays that it cannot write to.
        array = np.load(target, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, KeyError, TypeError, EOFError, RecursionError):
        return None
    if not isinstance(array, np.memmap) or array.shape != shape or array.dtype != np.uint8:
        return None
    return Cached(target, array, digest, notes)


def _notes_path(target: Path) -> Path:
    return target.with_suffix(".json")


def _digest(rows: Iterable[Bytes]) -> str:
    digest = hashlib.blake2b(digest_size=32)
    for block in rows:
        digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()


def _write(target: Path, shape: tuple[int, ...], rows: Iterable[Bytes]) -> str:
    """Write the array; returns the digest of its bytes."""
    digest = hashlib.blake2b(digest_size=32)
    with replacing(target, PRIVATE_FILE) as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        count = 0
        # Written, not mapped: a full disk is then an error rather than a bus error.
        for block in rows:
            if block.shape[1:] != shape[1:] or block.dtype != np.uint8:
                raise ValueError(f"a block {block.shape} of {block.dtype} in an array {shape}")
            contiguous = np.ascontiguousarray(block).data
            digest.update(contiguous)
            file.write(contiguous)
            count += len(block)
        if count != shape[0]:
            raise ValueError(f"{count} rows came for an array {shape}")
    return digest.hexdigest()
