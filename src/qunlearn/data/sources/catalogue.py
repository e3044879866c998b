"""A source's samples without their pixels, so that only the requested images are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from qunlearn.data.dataset import Augmentation, ImageData, subset_rows
from qunlearn.data.sources.registry import SourceOptions


@dataclass(frozen=True)
class Catalogue:
    """Everything about a source's samples but the pixels; `ImageData` documents the fields."""

    name: str
    labels: Tensor
    ids: Sequence[str]
    is_test: Tensor
    classes: tuple[str, ...]
    metadata: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def wanted(self, options: SourceOptions) -> Tensor:
        """The rows to read, ascending: all of them, or those of a subset."""
        if options.subset is None:
            return torch.arange(len(self.ids))
        subset = (options.subset, options.subset_seed)
        return subset_rows(self.name, self.labels, self.ids, self.is_test, *subset)

    def data(
        self,
        rows: Tensor,
        images: Tensor,
        mean: Sequence[float],
        std: Sequence[float],
        augmentation: Augmentation,
    ) -> ImageData:
        """The data set of these rows and their images."""
        kept = rows.tolist()
        ids = tuple(self.ids[row] for row in kept)
        return ImageData(
            name=self.name,
            images=images,
            labels=self.labels[rows],
            ids=ids,
            is_test=self.is_test[rows],
            classes=self.classes,
            mean=tuple(mean),
            std=tuple(std),
            augmentation=augmentation,
            metadata={k: tuple(cells[row] for row in kept) for k, cells in self.metadata.items()},
            left_out=frozenset(self.ids) - {*ids} if len(ids) < len(self.ids) else frozenset(),
        )
