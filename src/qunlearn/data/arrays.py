"""`Data`: converts arrays, tensors, lists and torch Datasets to an `ImageData`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qunlearn.data.dataset import Augmentation, ImageData
from qunlearn.data.memory import physical_memory
from qunlearn.data.samples import BLOCK, LAYOUTS
from qunlearn.data.stream import Stream, mapped_images
from qunlearn.errors import UserError, unknown
from qunlearn.store.cache import default_cache_dir


def Data(
    train: Any,
    test: Any = None,
    *,
    ids: Sequence[Any] | None = None,
    test_ids: Sequence[Any] | None = None,
    metadata: Mapping[str, Sequence[Any]] | None = None,
    test_metadata: Mapping[str, Sequence[Any]] | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    augment: Augmentation | Mapping[str, Any] | None = None,
    layout: str | None = None,
    classes: Sequence[str] | None = None,
    name: str | None = None,
    memory_budget: int | None = None,
    cache_dir: Path | str | None = None,
) -> ImageData:
    """Make an `ImageData` from arrays, tensors, lists or torch Datasets.

    Non-finite pixels, invalid labels and mismatched lengths are a `UserError`. uint8 images stay
    as they are, floats become float32.

    Args:
        train: A pair (images, labels) of arrays, tensors or lists; or a torch `Dataset` of
            (image, label), the image a tensor, an array or a PIL image, without random
            augmentation.
        test: The test part, in the same form. TA and MIA need one.
        ids: An id for each training sample, such as its database key, by which requests to forget
            name it; by default train/0, train/1 and so on.
        test_ids: Ids of the test samples; by default test/0, test/1 and so on.
        metadata: Columns of the training samples, as {"user": [42, 42, 7, ...]} or a data frame,
            for the rules of `Split.where`.
        test_metadata: The same columns of the test samples; by default empty.
        mean: Mean of each channel, for normalisation; for uint8 images in units of 0 to 1. By
            default that of the training part for uint8 images, and 0 for floats.
        std: Standard deviation of each channel, in the same units; required with `mean`.
        augment: Augmentation in training, as {"crop": 4, "flip": True}; by default none.
        layout: Axis order of the images: NHW, NHWC or NCHW; required if the shape is ambiguous. By
            default the axis of length 1, 3 or 4, first or last, has the channels.
        classes: Class names; by default those of the torch Dataset, or the numbers.
        name: Name of the data set, and of its copy in the cache.
        memory_budget: Bytes of images up to which they are held in memory, by default half of the
            machine's. Larger sets are copied to the cache once, and mapped from there.
        cache_dir: The cache folder; by default `qunlearn` in the user's.

    >>> import numpy as np
    >>> images = np.zeros((10, 32, 32, 3), dtype=np.uint8)
    >>> labels = np.arange(10) % 2
    >>> data = Data(train=(images[:8], labels[:8]), test=(images[8:], labels[8:]),
    ...             metadata={"user": [1, 1, 2, 2, 3, 3, 4, 4]}, mean=0.5, std=0.25,
    ...             augment={"flip": True})
    >>> data
    ImageData(arrays: 10 images of 3×32×32 (2 test), 2 classes; mean 0.5, std 0.25; flip)
    >>> data.ids[0], data.ids[-1], data.metadata["user"][:3]
    ('train/0', 'test/1', ('1', '1', '2'))
    """
    if layout is not None and layout not in LAYOUTS:
        raise UserError(f"The layout {layout!r} is unknown; choose NHW, NHWC or NCHW.")
    streams = [Stream(train, layout, "the training part")]
    count = streams[0].shape[0]
    parts = [_Part("train", count, ids, metadata)]
    if test is not None:
        streams.append(Stream(test, layout, "the test part"))
        if streams[0].shape[1:] != streams[1].shape[1:] or streams[0].dtype != streams[1].dtype:
            raise UserError(
                f"Training images are {_kind(streams[0])} and test images {_kind(streams[1])}; "
                "convert them to one shape and type."
            )
        parts.append(_Part("test", streams[1].shape[0], test_ids, test_metadata))
    elif test_ids is not None or test_metadata is not None:
        argument = "test_ids" if test_ids is not None else "test_metadata"
        raise UserError(f"{argument}= needs a test part; add test=(images, labels).")
    name = name or ("arrays" if isinstance(train, (tuple, list)) else type(train).__name__)
    if sum(stream.nbytes for stream in streams) <= _budget(memory_budget):
        wholes = [stream.whole() for stream in streams]
        images = torch.cat(wholes) if len(wholes) > 1 else wholes[0]
    else:
        folder = default_cache_dir() if cache_dir is None else Path(cache_dir)
        images = mapped_images(streams, name, folder)
    labels = torch.from_numpy(np.concatenate([stream.labels for stream in streams]))
    moments = _normalisation(images[:count], mean, std)
    return ImageData(
        name=name,
        images=images,
        labels=labels,
        ids=tuple(entry for part in parts for entry in part.names()),
        is_test=torch.arange(len(images)) >= count,
        classes=_classes(classes or getattr(train, "classes", None), int(labels.max())),
        mean=moments[0],
        std=moments[1],
        augmentation=checked_augmentation(augment, min(images.shape[2:])),
        metadata=_columns(parts),
    )


def as_image_data(dataset: Any, **options: Any) -> ImageData:
    """Convert a data set to an `ImageData`; see `Data` for the options."""
    if isinstance(dataset, ImageData):
        for argument, value in options.items():
            if value is not None:
                raise UserError(
                    f"{argument}= applies to arrays and torch Datasets, not to an ImageData."
                )
        return dataset
    return Data(dataset, **options)


@dataclass(frozen=True)
class _Part:
    """Ids and metadata of the samples of a part."""

    part: str
    count: int
    ids: Sequence[Any] | None
    metadata: Mapping[str, Sequence[Any]] | None

    def names(self) -> list[str]:
        if self.ids is None:
            return [f"{self.part}/{number}" for number in range(self.count)]
        return [str(name) for name in self._checked(self.ids, "ids")]

    def columns(self) -> dict[str, list[str]]:
        return {
            str(name): [_cell(v) for v in self._checked(cells, f"entries in {str(name)!r}")]
            for name, cells in (() if self.metadata is None else self.metadata.items())
        }

    def _checked(self, values: Sequence[Any], what: str) -> list[Any]:
        entries = values.tolist() if isinstance(values, (Tensor, np.ndarray)) else list(values)
        if len(entries) != self.count:
            raise UserError(
                f"There are {len(entries)} {what} for {self.count} samples of the {self.part} "
                "part; give one for each."
            )
        return entries


def _columns(parts: Sequence[_Part]) -> dict[str, tuple[str, ...]]:
    """Each metadata column over all parts, as text; empty for parts without that column."""
    tables = [part.columns() for part in parts]
    names = dict.fromkeys(name for columns in tables for name in columns)
    counts = [part.count for part in parts]
    return {
        name: tuple(
            cell
            for columns, count in zip(tables, counts, strict=True)
            for cell in columns.get(name, [""] * count)
        )
        for name in names
    }


def _cell(value: Any) -> str:
    """A value as a rule compares it; None and NaN are empty, as in a CSV file."""
    return "" if value is None or value != value else str(value).strip()


def _normalisation(
    images: Tensor, mean: float | Sequence[float] | None, std: float | Sequence[float] | None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel: the arguments, or the defaults."""
    channels, in_bytes = images.shape[1], images.dtype == torch.uint8
    if (mean is None) != (std is None):
        raise UserError("Only one of mean= and std= is given; give both, or neither.")
    if mean is None or std is None:
        return _moments(images) if in_bytes else ((0.0,) * channels, (1.0,) * channels)
    moments = []
    for name, argument, lowest in (("mean", mean, -math.inf), ("std", std, 0.0)):
        try:
            values = np.asarray(argument, dtype=np.float64).reshape(-1).tolist()
        except (TypeError, ValueError):
            raise UserError(f"{name} = {argument!r} is invalid: give numbers.") from None
        values = values * channels if len(values) == 1 else values
        if len(values) != channels:
            raise UserError(
                f"{name}= has {len(values)} numbers for {channels} channels; give one for each."
            )
        if not all(lowest < value < math.inf for value in values):
            kind = "numbers above zero" if name == "std" else "finite numbers"
            raise UserError(f"{name} = {argument!r} is invalid: give {kind}.")
        if in_bytes and max(map(abs, values)) > 1:
            raise UserError(
                f"{name} = {argument!r} is invalid for uint8 images, whose 0 to 255 are scaled to "
                "0 to 1; divide it by 255."
            )
        moments.append(tuple(values))
    return moments[0], moments[1]


def checked_augmentation(
    augment: Augmentation | Mapping[str, Any] | None, size: int
) -> Augmentation:
    """Validate the augmentation of images with this many pixels per side; by default none."""
    if augment is None:
        return Augmentation()
    settings = asdict(augment) if isinstance(augment, Augmentation) else augment
    names = asdict(Augmentation())
    if not isinstance(settings, Mapping):
        raise UserError(f'augment = {augment!r} is invalid: give {{"crop": 4, "flip": True}}.')
    for name in settings:
        if name not in names:
            raise unknown("augmentation", str(name), names)
    crop, flip = (settings.get(name, default) for name, default in names.items())
    if type(crop) is not int or not 0 <= crop < size or type(flip) is not bool:
        raise UserError(
            f"The augmentation crop = {crop!r}, flip = {flip!r} is invalid: crop is a number of "
            f"pixels from 0 to {size - 1}, flip is true or false."
        )
    return Augmentation(crop, flip)


def _classes(names: Any, highest: int) -> tuple[str, ...]:
    if names is None:
        return tuple(str(number) for number in range(highest + 1))
    if len(names) <= highest:
        raise UserError(
            f"There are {len(names)} class names, but the label {highest} occurs; name every class."
        )
    return tuple(str(name) for name in names)


def _moments(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of uint8 images per channel, in units of 0 to 1."""
    total = torch.zeros(images.shape[1], dtype=torch.float64)
    square = total.clone()
    for block in torch.split(images, BLOCK):
        values = block.double().div_(255)
        total += values.sum(dim=(0, 2, 3))
    mean = total / (images.numel() / images.shape[1])
    for block in torch.split(images, BLOCK):
        values = block.double().div_(255) - mean.view(-1, 1, 1)
        square += values.square_().sum(dim=(0, 2, 3))
    std = (square / (images.numel() / images.shape[1])).sqrt()
    # A constant channel is not scaled.
    std = torch.where(std > 1e-8, std, torch.ones_like(std))
    return tuple(mean.tolist()), tuple(std.tolist())


def _kind(part: Stream) -> str:
    return f"{'×'.join(map(str, part.shape[1:]))} of {part.dtype}"


def _budget(limit: int | None) -> float:
    memory = physical_memory()
    return limit if limit is not None else math.inf if memory is None else memory / 2
