"""Mean and standard deviation of 8-bit images, accumulated while they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from torch import Tensor

from qunlearn.data.sources.decode import Bytes


class Moments:
    """Sums over the pixels of each channel, as exact integers."""

    def __init__(self, channels: int) -> None:
        self.pixels = 0
        self.total = np.zeros(channels, dtype=np.int64)
        self.square = np.zeros(channels, dtype=np.int64)

    def of(self, blocks: Iterable[Bytes], counted: Tensor) -> Iterator[Bytes]:
        """Yield the blocks unchanged, adding the counted images to the sums."""
        start = 0
        for block in blocks:
            images = block[counted[start : start + len(block)].numpy()]
            start += len(block)
            self.pixels += images.size // images.shape[1]
            self.total += images.sum(axis=(0, 2, 3), dtype=np.int64)
            self.square += np.square(images, dtype=np.uint16).sum(axis=(0, 2, 3), dtype=np.int64)
            yield block

    def result(self) -> tuple[list[float], list[float]]:
        """Mean and standard deviation, in units of [0, 1]."""
        mean = self.total / self.pixels
        variance = np.maximum(self.square / self.pixels - mean**2, 0)
        std = np.sqrt(variance)
        # A constant channel has no scale.
        return (mean / 255).tolist(), np.where(std > 1e-6, std / 255, 1.0).tolist()
