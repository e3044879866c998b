"""The registry of data sources, and the options that a source gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qunlearn.data.dataset import ImageData
from qunlearn.registry import Registry

GIB = 1 << 30


@dataclass(frozen=True)
class SourceOptions:
    """The options that a source gets.

    Attributes:
        data_dir: Where the files are, or None.
        download: Whether missing files may be fetched from their official address.
        cache_dir: Where decoded images that exceed the memory budget are kept.
        memory_budget: Decoded bytes up to which the set is held in memory.
        subset: How many training samples to keep. A source may leave that to its caller; one that
            sees to it (with `Catalogue`) need not read the others.
        subset_seed: Which ones.
        image_size: Pixels to which images of a folder are resized; None takes them as they are.
        progress: Called during a download with the bytes so far and in all (None if unknown).
    """

    data_dir: Path | None
    cache_dir: Path
    download: bool = False
    memory_budget: int = GIB
    subset: int | None = None
    subset_seed: int = 0
    image_size: int | None = None
    progress: Callable[[int, int | None], None] | None = None


Source = Callable[[SourceOptions], ImageData]

sources: Registry[Source] = Registry("data set")
