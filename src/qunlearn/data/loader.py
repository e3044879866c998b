"""A batch loader with random access: any step of any epoch can be reproduced alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from qunlearn.data.dataset import Augmentation, ImageData
from qunlearn.data.draw import generator
from qunlearn.errors import UserError


@dataclass(frozen=True)
class Batch:
    """The samples of one step.

    Attributes:
        images: Normalised, float32.
        labels: Class numbers.
        index: Indices of the samples in the data set.
    """

    images: Tensor
    labels: Tensor
    index: Tensor


class Loader:
    """Divides a part of a data set into batches.

    Seed and epoch determine the order; seed, epoch and step the augmentation. The batches of an
    epoch are as equal as possible, so that none is smaller than half of `batch_size` (if there are
    enough samples): BatchNorm fails on a single one. With several processes, random numbers are
    drawn for the global batch and each process takes its slice: together they see exactly what one
    process would.

    Args:
        data: The data set.
        index: Indices of the samples to load.
        batch_size: Maximum size of the global batch, over all processes.
        seed: Determines order and augmentation.
        augment: Whether to apply `data.augmentation`.
        shuffle: Whether to shuffle in every epoch; otherwise in the order of `index`.
        stream: Loaders with the same seed but different streams draw independently.
        rank: Rank of this process.
        world: Number of processes.

    >>> from qunlearn.data import load_dataset
    >>> digits = load_dataset("digits")
    >>> loader = Loader(digits, torch.arange(100), batch_size=32)
    >>> len(loader), [len(batch.labels) for batch in loader.epoch(0)]
    (4, [25, 25, 25, 25])
    """

    def __init__(
        self,
        data: ImageData,
        index: Tensor,
        batch_size: int,
        *,
        seed: int = 0,
        augment: bool = True,
        shuffle: bool = True,
        stream: str = "",
        rank: int = 0,
        world: int = 1,
    ):
        if batch_size < 1:
            raise UserError(f"The batch size is {batch_size}; choose a positive number.")
        if not 0 <= rank < world:
            raise UserError(f"The rank is {rank} of {world} processes; choose 0 to {world - 1}.")
        self.data = data
        self.index = index
        self.augment = augment and data.augmentation != Augmentation()
        self.shuffle = shuffle
        self.key = (seed, stream) if stream else (seed,)
        self.rank = rank
        self.world = world
        self._steps = -(-len(index) // batch_size)
        self._order: tuple[int, Tensor] | None = None
        if self._steps and len(index) // self._steps < world:
            raise UserError(
                f"Batches of {batch_size} from {len(index)} samples leave some of the {world} "
                "processes without a sample; use larger batches or fewer processes."
            )

    def __len__(self) -> int:
        """Steps per epoch."""
        return self._steps

    def batch(self, epoch: int, step: int) -> Batch:
        """The batch of one step, without loading the previous ones."""
        start, end = self._span(step)
        size = end - start
        mine = slice(self.rank * size // self.world, (self.rank + 1) * size // self.world)
        rows = self._ordered(epoch)[start:end][mine]
        images = self.data.images.index_select(0, rows)  # 20 times as fast as [rows]
        if self.augment:
            noise = _draw(self.data.augmentation, size, *self.key, epoch, step)
            images = _apply(images, self.data.augmentation.crop, *(each[mine] for each in noise))
        return Batch(self.data.normalise(images), self.data.labels[rows], rows)

    def size(self, step: int) -> int:
        """Number of samples of a step, over all processes."""
        start, end = self._span(step)
        return end - start

    @property
    def smallest_share(self) -> int:
        """Minimum number of samples per process and step."""
        # Batches are as equal as possible: the smallest is the mean size, rounded down.
        return len(self.index) // self._steps // self.world if self._steps else 0

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, from step `start` on."""
        for step in range(start, self._steps):
            yield self.batch(epoch, step)

    def _span(self, step: int) -> tuple[int, int]:
        if not 0 <= step < self._steps:
            raise IndexError(f"step {step} of an epoch of {self._steps} steps")
        count = len(self.index)
        return step * count // self._steps, (step + 1) * count // self._steps

    def _ordered(self, epoch: int) -> Tensor:
        if not self.shuffle:
            return self.index
        if self._order is None or self._order[0] != epoch:
            order = generator("order", *self.key, epoch).permutation(len(self.index))
            self._order = (epoch, self.index[torch.from_numpy(order)])
        return self._order[1]


def _draw(augmentation: Augmentation, size: int, *key: int | str) -> tuple[Tensor, Tensor, Tensor]:
    """Draw the crop offset (down, right) of each image, and whether it is flipped."""
    rng = generator("augmentation", *key)
    offsets = torch.from_numpy(rng.integers(0, 2 * augmentation.crop + 1, size=(2, size)))
    flips = torch.from_numpy(rng.random(size) < 0.5) & augmentation.flip
    return offsets[0], offsets[1], flips


def _apply(images: Tensor, crop: int, down: Tensor, right: Tensor, flips: Tensor) -> Tensor:
    """Crop and flip; `images` may be overwritten."""
    if crop:
        height, width = images.shape[2:]
        # A view of all windows of the padded images; indexing copies one window per image. numpy
        # copies rows of pixels here, where torch would gather pixel by pixel.
        windows = np.lib.stride_tricks.sliding_window_view(
            pad(images, (crop, crop, crop, crop)).numpy(), (height, width), axis=(2, 3)
        )
        images = torch.from_numpy(windows[np.arange(len(images)), :, down.numpy(), right.numpy()])
    flipped = flips.nonzero().flatten()
    images.numpy()[flipped.numpy()] = images.index_select(0, flipped).flip(-1).numpy()
    return images
