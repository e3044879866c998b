"""Samples that are read a block at a time, so that they may exceed memory."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from qunlearn.characters import plain
from qunlearn.data.mapped import as_tensor
from qunlearn.data.samples import (
    BLOCK,
    Array,
    channels_first,
    check_labels,
    check_pair,
    check_pixels,
    check_repeatable,
    layout_of,
    read_sample,
)
from qunlearn.store.cache import check_space, memory_mapped

B = TypeVar("B", bound=Sized)
FORMAT = 1  # of the cache: another number makes older ones stale
PROBED = 32
"""Number of samples that the name of a cached copy depends on; its digest depends on all."""


class Stream:
    """One part of a data set: a pair of arrays, or a torch Dataset.

    Attributes:
        shape: Number of samples, channels, height, width.
        dtype: uint8 or float32.
        labels: Their labels; those of a torch Dataset are known once all blocks were read.
    """

    def __init__(self, dataset: Any, layout: str | None, what: str):
        self.what, self._dataset = what, dataset
        self.labels: Array = np.zeros(0, dtype=np.int64)
        self._images: Array | None = None
        if isinstance(dataset, tuple):
            self._images, labels = check_pair(dataset, what)
            self.labels = check_labels(labels, what, len(self._images))
            first, count = self._images[:1], len(self._images)
        else:
            first, count = check_repeatable(dataset, what)[None], len(dataset)
        self._layout = layout_of((count, *first.shape[1:]), layout)
        self._first = first
        sample = self._checked(first, [0])
        self.shape = (count, *sample.shape[1:])
        self.dtype = sample.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of all images."""
        return int(math.prod(self.shape) * self.dtype.itemsize)

    def blocks(self) -> Iterator[Tensor]:
        """The images in order, as N×C×H×W."""
        labels: list[Any] = []
        for start in range(0, self.shape[0], BLOCK):
            rows = range(start, min(start + BLOCK, self.shape[0]))
            yield self._read(rows, labels)
        if self._images is None:
            self.labels = check_labels(np.asarray(labels), self.what, self.shape[0])

    def whole(self) -> Tensor:
        """All images, in memory; arrays that need no conversion are not copied."""
        if self._images is not None:
            return self._checked(self._images, range(self.shape[0]))
        images, start = torch.empty(self.shape, dtype=self.dtype), 0
        for block in self.blocks():
            images[start : start + len(block)] = block
            start += len(block)
        return images

    def probe(self) -> bytes:
        """The digest of a few samples, evenly over the whole."""
        count = min(PROBED, self.shape[0])
        rows = [number * self.shape[0] // count for number in range(count)]
        digest = hashlib.blake2b(repr((self.shape, self.dtype)).encode(), digest_size=16)
        labels: list[Any] = []
        for row in rows:
            digest.update(self._read([row], labels).numpy().tobytes())
        return digest.digest()

    def _read(self, rows: range | list[int], labels: list[Any]) -> Tensor:
        if self._images is not None:
            return self._checked(self._images[rows[0] : rows[-1] + 1], rows)
        images = np.empty((len(rows), *self._first.shape[1:]), dtype=self._first.dtype)
        for number, row in enumerate(rows):
            images[number], label = read_sample(self._dataset, row, self.what, self._first[0])
            labels.append(label)
        return self._checked(images, rows)

    def _checked(self, images: Array, rows: range | list[int]) -> Tensor:
        return check_pixels(channels_first(images, self._layout), self.what, rows)


def mapped_images(parts: list[Stream], name: str, cache_dir: Path) -> Tensor:
    """All images of the parts, mapped from a copy in the cache that is written once.

    A copy that is there is used if every byte is the same: the samples are read and compared.
    """
    first = parts[0]
    image, floats = first.shape[1:], first.dtype == torch.float32
    count = sum(part.shape[0] for part in parts)
    width = image[2] * first.dtype.itemsize  # floats are kept as the bytes that they are made of
    shape = (count, *image[:2], width)
    if not any((cache_dir / "images").glob(f"{cached_arrays(name)}.*")):
        check_space(cache_dir, math.prod(shape))  # before a sample is read
    digest = hashlib.blake2b(str(FORMAT).encode(), digest_size=16)
    for part in parts:
        digest.update(part.probe())

    cached = memory_mapped(
        cache_dir / "images",
        cached_arrays(name),
        digest.hexdigest(),
        shape,
        _Rows(parts, name),
        lambda: None,
        verify=True,
    )
    return as_tensor(cached, floats)


@dataclass(frozen=True)
class _Rows:
    """The bytes of all parts, read anew each time."""

    parts: list[Stream]
    name: str

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return shown(self._blocks(), sum(part.shape[0] for part in self.parts), self.name)

    def _blocks(self) -> Iterator[NDArray[np.uint8]]:
        for part in self.parts:
            for block in part.blocks():
                yield block.numpy().view(np.uint8)


def cached_arrays(name: str) -> str:
    """What the names of files begin with in which data from Python are cached."""
    safe = "".join(c if c.isascii() and c.isalnum() else "-" for c in name[:100])
    return f"arrays-{safe or 'data'}"


def shown(blocks: Iterable[B], count: int, name: str) -> Iterator[B]:
    """The blocks, with a progress bar over the samples; a line if nobody watches."""
    console = Console(stderr=True)
    if not sys.stderr.isatty() and count >= 10_000:
        console.print(f"converting {count:,} images of {plain(name)}, once", markup=False)
    columns = (TextColumn("converting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=count)
        for block in blocks:
            yield block
            bar.advance(task, len(block))
