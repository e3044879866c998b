"""`Data`: whatever holds labelled images, made into an `ImageData`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qunlearn.data.dataset import Augmentation, ImageData
from qunlearn.data.samples import BLOCK, LAYOUTS, read_samples
from qunlearn.errors import UserError, unknown


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
) -> ImageData:
    """Make a data set of arrays, tensors, lists or torch Datasets: an `ImageData`.

    Pixels that are not numbers, labels that are not classes and lengths that do not agree are
    refused. uint8 images stay as they are, floats become float32.

    Args:
        train: A pair (images, labels) of arrays, tensors or lists; or a torch `Dataset` of
            (image, label), the image a tensor, an array or a PIL image, without random
            augmentation.
        test: The test part, likewise. Without one, TA and MIA cannot be measured.
        ids: A name for each training sample, such as the key of its row in your database, by which
            it can be asked to be forgotten; by default train/0, train/1 and so on.
        test_ids: Those of the test samples; by default test/0, test/1 and so on.
        metadata: Columns about the training samples, as {"user": [42, 42, 7, ...]}, by which
            `Split.where` chooses; a data frame will do.
        test_metadata: The same columns about the test samples; by default empty.
        mean: What is subtracted from each channel before the network sees it; of uint8 images in
            units of 0 to 1. By default the training part's own mean for uint8 images, and nothing
            for floats, which the network sees as they are.
        std: What each channel is divided by after that, likewise; goes with `mean`.
        augment: What training may do to an image, as {"crop": 4, "flip": True}; by default nothing.
        layout: How images are laid out: NHW, NHWC or NCHW; needed where the shape leaves it open.
            By default channels are first or last, whichever is 1, 3 or 4 long.
        classes: Class names; by default those of the torch Dataset, or the numbers.
        name: What to call it.

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
    images, labels = read_samples(train, layout, "the training part")
    count = len(images)
    parts = [_Part("train", count, ids, metadata)]
    moments = _normalisation(images, mean, std)
    if test is not None:
        more, more_labels = read_samples(test, layout, "the test part")
        if more.shape[1:] != images.shape[1:] or more.dtype != images.dtype:
            raise UserError(
                f"Training images are {_kind(images)} and test images {_kind(more)}; they must be "
                "of one kind."
            )
        images, labels = torch.cat([images, more]), torch.cat([labels, more_labels])
        parts.append(_Part("test", len(more), test_ids, test_metadata))
    elif test_ids is not None or test_metadata is not None:
        given = "test_ids" if test_ids is not None else "test_metadata"
        raise UserError(f"{given}= is given, but no test part; give test=(images, labels), too.")
    return ImageData(
        name=name or ("arrays" if isinstance(train, (tuple, list)) else type(train).__name__),
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
    """Whatever holds labelled images as an `ImageData`; see `Data` for the options."""
    if isinstance(dataset, ImageData):
        for argument, value in options.items():
            if value is not None:
                raise UserError(f"{argument}= is for arrays and torch data sets, not ImageData.")
        return dataset
    return Data(dataset, **options)


@dataclass(frozen=True)
class _Part:
    """What is known about the samples of a part, beside their images."""

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
        found = values.tolist() if isinstance(values, (Tensor, np.ndarray)) else list(values)
        if len(found) != self.count:
            raise UserError(
                f"There are {len(found)} {what} for {self.count} samples of the {self.part} part; "
                "give one for each."
            )
        return found


def _columns(parts: Sequence[_Part]) -> dict[str, tuple[str, ...]]:
    """Each column over all parts, as text; empty for the samples of a part that has it not."""
    found = [part.columns() for part in parts]
    names = dict.fromkeys(name for columns in found for name in columns)
    counts = [part.count for part in parts]
    return {
        name: tuple(
            cell
            for columns, count in zip(found, counts, strict=True)
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
    """What is given, for each channel; or else the default."""
    channels, in_bytes = images.shape[1], images.dtype == torch.uint8
    if (mean is None) != (std is None):
        raise UserError("mean= and std= go together; give both, or neither.")
    if mean is None or std is None:
        return _moments(images) if in_bytes else ((0.0,) * channels, (1.0,) * channels)
    found = []
    for name, given, lowest in (("mean", mean, -math.inf), ("std", std, 0.0)):
        try:
            values = np.asarray(given, dtype=np.float64).reshape(-1).tolist()
        except (TypeError, ValueError):
            raise UserError(f"{name} = {given!r} is not possible: give numbers.") from None
        values = values * channels if len(values) == 1 else values
        if len(values) != channels:
            raise UserError(f"{name}= has {len(values)} numbers for {channels} channels.")
        if not all(lowest < value < math.inf for value in values):
            kind = "numbers above zero" if name == "std" else "finite numbers"
            raise UserError(f"{name} = {given!r} is not possible: give {kind}.")
        if in_bytes and max(map(abs, values)) > 1:
            raise UserError(
                f"{name} = {given!r} is not possible for uint8 images, whose 0 to 255 count as 0 "
                "to 1; divide it by 255."
            )
        found.append(tuple(values))
    return found[0], found[1]


def checked_augmentation(given: Augmentation | Mapping[str, Any] | None, size: int) -> Augmentation:
    """What training may do to images of this many pixels a side; by default nothing."""
    if given is None:
        return Augmentation()
    wanted = asdict(given) if isinstance(given, Augmentation) else given
    names = asdict(Augmentation())
    if not isinstance(wanted, Mapping):
        raise UserError(f'augment = {given!r} is not possible: give {{"crop": 4, "flip": True}}.')
    for name in wanted:
        if name not in names:
            raise unknown("augmentation", str(name), names)
    crop, flip = (wanted.get(name, usual) for name, usual in names.items())
    if type(crop) is not int or not 0 <= crop < size or type(flip) is not bool:
        raise UserError(
            f"The augmentation crop = {crop!r}, flip = {flip!r} is not possible: crop is a number "
            f"of pixels from 0 to {size - 1}, flip is true or false."
        )
    return Augmentation(crop, flip)


def _classes(names: Any, highest: int) -> tuple[str, ...]:
    if names is None:
        return tuple(str(number) for number in range(highest + 1))
    if len(names) <= highest:
        raise UserError(f"There are {len(names)} class names, but the label {highest} occurs.")
    return tuple(str(name) for name in names)


def _moments(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of bytes per channel, in units of 0 to 1, block by block."""
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
    # A channel without contrast has nothing to be scaled.
    std = torch.where(std > 1e-8, std, torch.ones_like(std))
    return tuple(mean.tolist()), tuple(std.tolist())


def _kind(images: Tensor) -> str:
    return f"{'×'.join(map(str, images.shape[1:]))} of {images.dtype}"
