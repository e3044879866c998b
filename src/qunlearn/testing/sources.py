"""Checks of a data source: the same samples each time, however they are asked for."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from qunlearn.data import ImageData, Loader, Split, load_dataset
from qunlearn.data.dataset import by_class

FIELDS = ("classes", "mean", "std", "augmentation", "metadata", "left_out")
"""What else must be the same for the same samples; their order is that of the ids."""


def check_source(name: str, **options: Any) -> None:
    """Check that a data source keeps what splits, run folders and requests rely on.

    Every load gives the same samples under the same ids, also where the images do not fit into
    memory and come from the cache. A subset is that of the whole. Types are as documented, pixels
    finite, and training images can be drawn in batches.

    Args:
        name: As `qunlearn train --dataset` takes it: a registered name, or a path.
        **options: Those of `load_dataset`, such as `data_dir`.

    Raises:
        AssertionError: With a sentence about the first thing that is not so.

    Example:
        >>> check_source("digits")
    """
    who = f"Source {name!r}"
    data = load_dataset(name, **options)
    train = (~data.is_test).nonzero().flatten()
    assert len(train), f"{who} has no training sample."
    assert data.labels.dtype == torch.int64, f"{who} has labels of {data.labels.dtype}, not int64."
    assert data.is_test.dtype == torch.bool, f"{who} has an is_test of {data.is_test.dtype}."
    crop, side = data.augmentation.crop, min(data.image_size)
    assert 0 <= crop < side, f"{who} advises to crop {crop} pixels of images that have {side}."
    _check_same(f"{who} loaded twice", data, load_dataset(name, **options))
    with tempfile.TemporaryDirectory(prefix="qunlearn-") as folder:
        small = {**options, "memory_budget": 1, "cache_dir": Path(folder)}
        for _ in range(2):  # where the cache is made, and where it is found
            _check_same(f"{who} beyond the memory budget", data, load_dataset(name, **small))
        wanted = max(len(by_class(train.tolist(), data.labels)), len(train) // 2)
        for each in (options, small):
            subset = load_dataset(name, **{**each, "subset": wanted, "subset_seed": 3})
            # Its mean and deviation may be its own: of the others, no pixel need be read.
            part = replace(data.subset(wanted, 3), mean=subset.mean, std=subset.std)
            _check_same(f"{who} asked for a subset", part, subset)
    for batch in Loader(data, Split.make(data).train, batch_size=64).epoch(0):
        assert torch.isfinite(batch.images).all(), f"{who} has pixels that are not finite."


def _check_same(who: str, data: ImageData, other: ImageData) -> None:
    assert data.ids == other.ids, f"{who} has other ids, or the same in another order."
    for what in FIELDS:
        one, two = getattr(data, what), getattr(other, what)
        assert one == two, f"{who} has another {what}: {one} and {two}."
    rows = range(len(data))
    same = data.hashes(rows) == other.hashes(rows)
    assert same, f"{who} has other images or labels under the same ids."
