"""Small sets for tests."""

from __future__ import annotations

import torch

from qunlearn.data import Augmentation, ImageData


def make_data(
    train: list[int], test: list[int] = (), *, size: int = 6, crop: int = 0, flip: bool = False
) -> ImageData:
    """A small set of random images with these labels."""
    labels = torch.tensor([*train, *test], dtype=torch.int64)
    chance = torch.Generator().manual_seed(len(labels))
    shape = (len(labels), 3, size, size + 1)
    ids = [f"train/{k}" for k in range(len(train))] + [f"test/{k}" for k in range(len(test))]
    return ImageData(
        name="toy",
        images=torch.randint(0, 256, shape, dtype=torch.uint8, generator=chance),
        labels=labels,
        ids=tuple(ids),
        is_test=torch.arange(len(labels)) >= len(train),
        classes=("cat", "dog", "duck", "fish")[: max(4, int(labels.max()) + 1)],
        mean=(0.1, 0.2, 0.3),
        std=(0.5, 0.25, 0.125),
        augmentation=Augmentation(crop, flip),
    )
