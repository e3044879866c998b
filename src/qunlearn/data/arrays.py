"""Anything that holds labelled images, made into an `ImageData`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import IterableDataset

from qunlearn.data.dataset import Augmentation, ImageData
from qunlearn.data.memory import check_memory
from qunlearn.errors import UserError

Array = NDArray[Any]
LAYOUTS = {"NHW": 3, "NHWC": 4, "NCHW": 4}
CHANNELS = (1, 3, 4)
EIGHT_BIT = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")
MOST_CLASSES = 100_000
BLOCK = 256  # images whose mean is taken at a time: in doubles they take eight times their bytes


def as_image_data(
    dataset: Any,
    *,
    test: Any = None,
    name: str | None = None,
    layout: str | None = None,
    classes: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    test_ids: Sequence[str] | None = None,
    augmentation: Augmentation | None = None,
) -> ImageData:
    """Make an `ImageData` of whatever holds labelled images.

    uint8 images stay as they are, floats become float32. Pixels that are not numbers, labels that
    are not classes and lengths that do not agree are refused.

    Args:
        dataset: An `ImageData`; a torch `Dataset` of (image, label), the image a tensor, an array
            or a PIL image, without random augmentation; or a tuple (images, labels) of arrays.
        test: The test part, as a data set or a tuple likewise.
        name: What to call it.
        layout: How arrays are laid out: NHW, NHWC or NCHW; needed where the shape leaves it open.
        classes: Class names; by default those of the data set, or the numbers.
        ids: The ids of the samples; by default train/0, train/1 and so on.
        test_ids: The ids of the test samples; by default test/0, test/1 and so on.
        augmentation: What training may do to the images; by default nothing.

    >>> import numpy as np
    >>> images = np.zeros((10, 32, 32, 3), dtype=np.uint8)
    >>> data = as_image_data((images, np.arange(10) % 2))
    >>> data.images.shape, data.classes, data.ids[:2]
    (torch.Size([10, 3, 32, 32]), ('0', '1'), ('train/0', 'train/1'))
    """
    if isinstance(dataset, ImageData):
        given = {"test": test, "layout": layout, "classes": classes, "ids": ids}
        given |= {"name": name, "test_ids": test_ids, "augmentation": augmentation}
        for argument, value in given.items():
            if value is not None:
                raise UserError(f"{argument}= is for arrays and torch data sets, not ImageData.")
        return dataset
    if layout is not None and layout not in LAYOUTS:
        raise UserError(f"The layout {layout!r} is unknown; choose NHW, NHWC or NCHW.")
    images, labels = _read(dataset, layout, "the training part")
    count = len(images)
    names = _names(ids, "train", count)
    is_test = torch.zeros(count, dtype=torch.bool)
    mean, std = _moments(images)
    if test is not None:
        more, more_labels = _read(test, layout, "the test part")
        if more.shape[1:] != images.shape[1:] or more.dtype != images.dtype:
            raise UserError(
                f"Training images are {_kind(images)} and test images {_kind(more)}; they must be "
                "of one kind."
            )
        images, labels = torch.cat([images, more]), torch.cat([labels, more_labels])
        names += _names(test_ids, "test", len(more))
        is_test = torch.cat([is_test, torch.ones(len(more), dtype=torch.bool)])
    return ImageData(
        name=name or ("arrays" if isinstance(dataset, tuple) else type(dataset).__name__),
        images=images,
        labels=labels,
        ids=names,
        is_test=is_test,
        classes=_classes(classes or getattr(dataset, "classes", None), int(labels.max())),
        mean=mean,
        std=std,
        augmentation=augmentation or Augmentation(),
    )


def _read(dataset: Any, layout: str | None, what: str) -> tuple[Tensor, Tensor]:
    if isinstance(dataset, tuple):
        if len(dataset) != 2:
            raise UserError(
                f"A tuple of {len(dataset)} was given for {what}; give (images, labels)."
            )
        images, labels = (_array(part, what) for part in dataset)
    elif isinstance(dataset, IterableDataset) or not (
        hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    ):
        raise UserError(
            f"An object of type {type(dataset).__name__} was given for {what}, which has no "
            "length or no random access; give a map-style torch Dataset or (images, labels)."
        )
    else:
        images, labels = _collect(dataset, what)
    labels = _check_labels(labels, what)
    if len(images) != len(labels):
        raise UserError(f"There are {len(images)} images but {len(labels)} labels in {what}.")
    if not len(images):
        raise UserError(f"There are no samples in {what}.")
    pixels = _check_pixels(_channels_first(images, layout), what)
    return pixels, torch.from_numpy(labels.astype(np.int64))


def _collect(dataset: Any, what: str) -> tuple[Array, Array]:
    """All samples of a torch data set, as one array of images and one of labels."""
    count = len(dataset)
    if not count:
        raise UserError(f"There are no samples in {what}.")
    first, again = _sample(dataset, 0, what)[0], _sample(dataset, 0, what)[0]
    if first.shape != again.shape or not np.array_equal(
        first, again, equal_nan=first.dtype != object
    ):
        raise UserError(
            f"Sample 0 of {what} differs each time it is read; take random augmentation out of the "
            "data set's transform (the loader augments)."
        )
    remedy = "store the images as a folder of files, which is mapped from disk"
    check_memory(count * first.nbytes, f"{what.capitalize()} of {count} samples", remedy)
    images = np.empty((count, *first.shape), dtype=first.dtype)
    labels = []
    for position in range(count):
        image, label = _sample(dataset, position, what)
        if image.shape != first.shape or image.dtype != first.dtype:
            raise UserError(
                f"Sample {position} of {what} is {image.shape} of {image.dtype}, sample 0 is "
                f"{first.shape} of {first.dtype}; resize them to one kind."
            )
        images[position] = image
        labels.append(label)
    return images, np.asarray(labels)


def _sample(dataset: Any, position: int, what: str) -> tuple[Array, Any]:
    sample = dataset[position]
    if not isinstance(sample, (tuple, list)) or len(sample) != 2:
        raise UserError(f"Sample {position} of {what} is not a pair (image, label).")
    image, label = sample
    if hasattr(image, "convert") and hasattr(image, "getbands"):  # a PIL image
        if image.mode not in EIGHT_BIT:
            raise UserError(
                f"Sample {position} of {what} is a PIL image of mode {image.mode!r}; convert it to "
                "'L' or 'RGB'."
            )
        image = np.asarray(image if image.mode == "L" else image.convert("RGB"))
    if isinstance(label, Tensor):
        label = label.numpy()
    if np.ndim(label) != 0:
        raise UserError(f"The label {label!r} of sample {position} of {what} is not one number.")
    return _array(image, what), label


def _array(value: Any, what: str) -> Array:
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.kind not in "uifb":
        raise UserError(f"There is an array of {array.dtype} in {what}; numbers are expected.")
    return array


def _channels_first(images: Array, layout: str | None) -> Array:
    shape = images.shape
    if layout is None:
        layout = _guess(shape)
    if len(shape) != LAYOUTS[layout] or 0 in shape[1:]:
        raise UserError(f"Images of shape {shape} are not laid out as {layout}.")
    if layout == "NHW":
        return images[:, None]
    return images.transpose(0, 3, 1, 2) if layout == "NHWC" else images


def _guess(shape: tuple[int, ...]) -> str:
    if len(shape) == 3:
        return "NHW"
    if len(shape) != 4:
        raise UserError(f"Images of shape {shape} are not N×H×W, N×H×W×C or N×C×H×W.")
    first, last = shape[1] in CHANNELS, shape[3] in CHANNELS
    if first == last:
        raise UserError(
            f"Images of shape {shape} may have their channels first or last; say which with "
            "layout='NCHW' or layout='NHWC'."
        )
    return "NCHW" if first else "NHWC"


def _check_pixels(images: Array, what: str) -> Tensor:
    if images.dtype.kind == "f":
        with np.errstate(over="ignore"):  # too large for float32 becomes inf, which is refused
            images = np.ascontiguousarray(images, dtype=np.float32)
        for start in range(0, len(images), BLOCK):
            right = np.isfinite(images[start : start + BLOCK]).all(axis=(1, 2, 3))
            if not right.all():
                raise UserError(
                    f"Image {start + int(right.argmin())} of {what} has pixels that are not finite "
                    "numbers; repair or remove it."
                )
    elif images.dtype != np.uint8:
        raise UserError(
            f"The images of {what} are {images.dtype}; convert them to uint8 (0..255) or float32."
        )
    with warnings.catch_warnings():
        # Arrays that may not be written to are fine: nothing here writes.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(images))


def _check_labels(labels: Array, what: str) -> Array:
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or (len(labels) and labels.dtype.kind not in "ui"):
        raise UserError(
            f"The labels of {what} are {labels.dtype} of shape {labels.shape}; give one whole "
            "number per image."
        )
    wrong = (labels < 0) | (labels >= MOST_CLASSES)
    if wrong.any():
        position = int(wrong.argmax())
        raise UserError(
            f"The label {labels[position]} of sample {position} of {what} is out of range; number "
            "the classes from 0."
        )
    return labels


def _names(ids: Sequence[str] | None, part: str, count: int) -> tuple[str, ...]:
    if ids is None:
        return tuple(f"{part}/{number}" for number in range(count))
    if len(ids) != count:
        raise UserError(f"There are {len(ids)} ids for {count} samples of the {part} part.")
    return tuple(str(name) for name in ids)


def _classes(names: Any, highest: int) -> tuple[str, ...]:
    if names is None:
        return tuple(str(number) for number in range(highest + 1))
    if len(names) <= highest:
        raise UserError(f"There are {len(names)} class names, but the label {highest} occurs.")
    return tuple(str(name) for name in names)


def _moments(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel, block by block in double precision."""
    unit = 255.0 if images.dtype == torch.uint8 else 1.0
    total = torch.zeros(images.shape[1], dtype=torch.float64)
    square = total.clone()
    for block in torch.split(images, BLOCK):
        values = block.double().div_(unit)
        total += values.sum(dim=(0, 2, 3))
    mean = total / (images.numel() / images.shape[1])
    for block in torch.split(images, BLOCK):
        values = block.double().div_(unit) - mean.view(-1, 1, 1)
        square += values.square_().sum(dim=(0, 2, 3))
    std = (square / (images.numel() / images.shape[1])).sqrt()
    # A channel without contrast has nothing to be scaled.
    std = torch.where(std > 1e-8, std, torch.ones_like(std))
    return tuple(mean.tolist()), tuple(std.tolist())


def _kind(images: Tensor) -> str:
    return f"{'×'.join(map(str, images.shape[1:]))} of {images.dtype}"
