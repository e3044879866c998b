"""Decoding image files into one array, in memory or, if too large, memory-mapped from a cache."""

from __future__ import annotations

import hashlib
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qunlearn.data.mapped import as_tensor
from qunlearn.data.samples import EIGHT_BIT
from qunlearn.data.sources.registry import SourceOptions
from qunlearn.data.stream import shown
from qunlearn.errors import UserError
from qunlearn.store.cache import drop_cache, memory_mapped

Bytes = NDArray[np.uint8]
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
FORMAT = 3  # of the cache; raise it to invalidate existing caches
MOST_PIXELS = 1 << 26  # per image: a small file can decode to an enormous image


def decode(
    name: str,
    options: SourceOptions,
    wanted: Tensor,
    image: tuple[int, int, int],
    blocks: Iterable[Bytes],
    origin: Path,
    files: Sequence[Path],
    notes: Callable[[], Any] = lambda: None,
) -> tuple[Tensor, Any]:
    """Collect images into one N×C×H×W tensor of bytes.

    Args:
        name: The name of the data set.
        options: The memory budget and the cache folder.
        wanted: The rows to read, of all that the files hold.
        image: The shape of an image.
        blocks: The wanted images in order, an iterator; not consumed if they are cached.
        origin: The folder of the files.
        files: All files of the data set; a change of one invalidates the cache.
        notes: Called after the last image; its result is cached and returned, too.
    """
    folder = options.cache_dir / "images"
    base = cached_as(name, origin)
    shape = (len(wanted), *image)
    if math.prod(shape) > options.memory_budget:
        _drop_stale(folder, base, files)
        which = hashlib.blake2b(wanted.numpy().tobytes(), digest_size=8)
        which.update(repr(shape).encode())
        part = "" if options.subset is None else "-subset"
        key = f"{_state(files)}-{which.hexdigest()}"
        rows = shown(blocks, len(wanted), name)
        cached = memory_mapped(folder, base + part, key, shape, rows, notes)
        return as_tensor(cached), cached.notes
    # Images erased from the folder must not survive in a cache of its earlier content.
    if options.subset is None:
        drop_cache(folder, base)
    _drop_stale(folder, base, files)
    array, start = np.empty(shape, dtype=np.uint8), 0
    for block in blocks:
        array[start : start + len(block)] = block
        start += len(block)
    return torch.from_numpy(array), notes()


def cached_as(name: str, origin: Path) -> str:
    """The prefix of the names of a data set's cache files."""
    place = hashlib.blake2b(os.fsencode(origin.resolve()), digest_size=8).hexdigest()
    return f"{name}-{place}"


def decode_files(
    files: Sequence[Path], size: tuple[int, int], resize: bool = False
) -> Iterator[Bytes]:
    """Each image file as 1×3×H×W bytes, all of one size."""
    for file in files:
        yield read_image(file, size, resize).transpose(2, 0, 1)[None]


def read_image(file: Path, size: tuple[int, int], resize: bool = False) -> Bytes:
    """One image file as H×W×3 bytes; a `UserError` names a file that cannot be read."""
    from PIL import Image

    with _open(file) as image:
        if not resize and (image.height, image.width) != size:
            raise UserError(
                f"The image {str(file)!r} has {image.width}×{image.height} pixels where "
                f"{size[1]}×{size[0]} are expected; give all images one size, or use --image-size."
            )
        if image.mode not in EIGHT_BIT:
            raise UserError(
                f"The image {str(file)!r} does not have 8 bits per channel (its mode is "
                f"{image.mode!r}); convert it to 8 bits."
            )
        try:
            colours = image.convert("RGB")
        except Exception as error:  # decoders raise nearly anything on damaged files
            raise _damaged(file, error) from None
        if resize:
            colours = colours.resize((size[1], size[0]), Image.Resampling.BILINEAR)
        return np.asarray(colours)


def size_of(file: Path) -> tuple[int, int]:
    """Height and width of an image file, read from its header."""
    with _open(file) as image:
        return image.height, image.width


def _open(file: Path) -> Any:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            # Pillow's warning about large images; the bound below is stricter.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(file, formats=FORMATS)
    except Exception as error:  # decoders raise nearly anything on damaged files
        raise _damaged(file, error) from None
    if image.width * image.height > MOST_PIXELS:
        image.close()
        raise UserError(
            f"The image {str(file)!r} claims {image.width}×{image.height} pixels; more than "
            f"{MOST_PIXELS:,} are not read: reduce or remove it."
        )
    return image


def check_inside(base: Path, *paths: Path) -> None:
    """Raise unless each path is a regular file or folder inside the data set's folder.

    Links may lead to files that nobody meant. Of folders that the paths lie in only `base` is
    trusted, so each folder is to be checked before what is in it.
    """
    for path in paths:
        if path.is_symlink() and not path.resolve().is_relative_to(base.resolve()):
            raise UserError(
                f"{str(path)!r} is a link that leads out of {str(base)!r}; put what it leads to in "
                "its place, or remove it."
            )
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise UserError(
                f"{str(path)!r} is a pipe, a socket or a device, not a regular file; remove it."
            )


def check_plain(name: str, source: Path) -> None:
    """Raise if a file name read from a file is a path, which could lead out of the folder."""
    if Path(name).name != name or len(os.fsencode(name)) > 255:
        raise UserError(
            f"The file {str(source)!r} names {name!r}, which is a path or too long for a file "
            "name; unpack the data set again."
        )


def _damaged(file: Path, error: BaseException) -> UserError:
    return UserError(f"The image {str(file)!r} cannot be read ({error}); restore or remove it.")


def safe_name(name: str) -> str:
    """The name of the data set, safe for use in a file name."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in name[:100]) or "data"


def _drop_stale(folder: Path, base: str, files: Sequence[Path]) -> None:
    """Delete caches of files that have changed, of all images and of subsets."""
    cached = {path.name.rpartition(".")[0] for path in folder.glob(f"{base}*")}
    if cached:
        state = _state(files)
        for name in cached:
            if name.partition(".")[2].partition("-")[0] != state:
                drop_cache(folder, name)


def _state(files: Sequence[Path]) -> str:
    """A digest of size, times and inode of each file; changes when a file does.

    A program can set the time of modification, but not that of the last change of whatever kind.
    """
    digest = hashlib.blake2b(str(FORMAT).encode(), digest_size=16)
    for file in files:
        now = file.stat()
        times = f"{now.st_mtime_ns}|{now.st_ctime_ns}"
        digest.update(os.fsencode(f"{file}|{now.st_ino}|{now.st_size}|{times}\n"))
    return digest.hexdigest()
