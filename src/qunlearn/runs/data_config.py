"""Where a run's data is: the settings of `train` and `adopt`, and what every run has on record."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from qunlearn.training.config import LARGEST_SEED, Config

MOVED = "Where the data is now: a folder or an .npz file; it must be the same data."


class DataConfig(Config):
    """Which samples: the source, the subset, the held-out part."""

    panel: ClassVar[str] = "Data"
    dataset: str = Field(
        "digits",
        description="digits, cifar10, cifar100, svhn, tiny-imagenet, a folder of images, or an "
        ".npz file.",
    )
    data_dir: Path | None = Field(None, description="Where the data set's files are.")
    download: bool = Field(
        False,
        description="Fetch the data set from its official address first.",
        exclude=True,  # a file never decides that something is fetched
    )
    subset: int | None = Field(
        None, gt=0, description="Use only N training images: a fixed, class-balanced subset."
    )
    image_size: int | None = Field(
        None, gt=0, description="Resize a folder's images to this many pixels a side."
    )
    cache_dir: Path | None = Field(
        None,
        description="Where downloads and decoded images are kept; your cache folder by default.",
    )
    metadata: Path | None = Field(
        None, description="A CSV to join to the samples by its column `id`."
    )
    pseudonymise: bool = Field(
        False,
        description="Give samples pseudonyms in all files, where their ids name people; the key to "
        "them is split.key.",
    )
    split_seed: int = Field(
        0, ge=0, le=LARGEST_SEED, description="Seed of the subset and the held-out part."
    )
