"""Images that are mapped from a file: which file that is, and how another process gets them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from qunlearn.errors import UserError
from qunlearn.store.cache import Cached, open_cached

if TYPE_CHECKING:
    from qunlearn.data.sources.registry import SourceOptions

FILE = "mapped_from"
"""The attribute of a mapped tensor that has its `MappedFile`."""

_opened: WeakValueDictionary[str, Tensor] = WeakValueDictionary()
"""What this process has mapped, by digest."""


@dataclass(frozen=True)
class MappedFile:
    """What takes the place of mapped images wherever they are sent: they are never copied.

    Attributes:
        path: The file in the cache.
        shape: Shape of the array in it, in bytes.
        floats: Whether the bytes are those of float32 numbers.
        digest: The digest of the array.
        source: The data source that it was made by, if it can be made again.
        options: What that source was told.
    """

    path: Path
    shape: tuple[int, ...]
    floats: bool
    digest: str
    source: str | None = None
    options: SourceOptions | None = None

    def open(self) -> Tensor:
        """Map the images: from the file, or from one that is made of the data of this machine."""
        images = _opened.get(self.digest)
        if images is not None:
            return images
        cached = open_cached(self.path, self.shape)
        if cached is not None and cached.digest == self.digest:
            return as_tensor(cached, self.floats)
        if self.source is None or self.options is None:
            raise UserError(
                f"There is no copy of the images at {str(self.path)!r}, and they cannot be made "
                "again from Python objects; put the cache on a disk that all nodes share."
            )
        from qunlearn.data.sources import sources

        made = sources[self.source](self.options).images
        file = file_of(made)
        if file is None or file.digest != self.digest:
            raise UserError(
                f"The data at {str(self.options.data_dir or self.source)!r} are not the same as "
                "where the command was given; copy them from there."
            )
        return made


def as_tensor(cached: Cached, floats: bool = False) -> Tensor:
    """The cached array as a tensor that knows its file."""
    images = torch.from_numpy(cached.array)
    file = MappedFile(cached.path, tuple(cached.array.shape), False, cached.digest)
    setattr(images, FILE, file)
    if floats:
        images = as_floats(images)
    _opened[cached.digest] = images
    return images


def as_floats(images: Tensor) -> Tensor:
    """Bytes as the float32 numbers that they are made of; mapped ones stay mapped."""
    floats, file = images.view(torch.float32), file_of(images)
    if file is not None:
        setattr(floats, FILE, replace(file, floats=True))
        _opened[file.digest] = floats
    return floats


def file_of(images: Tensor) -> MappedFile | None:
    """The file that a tensor is mapped from; None for one in memory."""
    file = getattr(images, FILE, None)
    return file if isinstance(file, MappedFile) else None


def made_by(images: Tensor, source: str, options: SourceOptions) -> None:
    """Note which source mapped images come from."""
    file = file_of(images)
    if file is not None:
        setattr(images, FILE, replace(file, source=source, options=options))
