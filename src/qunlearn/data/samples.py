"""Validated images and labels from arrays, tensors, lists or torch Datasets."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import IterableDataset

from qunlearn.errors import UserError

Array = NDArray[Any]
LAYOUTS = {"NHW": 3, "NHWC": 4, "NCHW": 4}
CHANNELS = (1, 3, 4)
EIGHT_BIT = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")
MOST_CLASSES = 100_000
BLOCK = 256
"""Number of images processed at a time: as float64 they take eight times their bytes."""


def check_pair(dataset: tuple[Any, ...], what: str) -> tuple[Array, Array]:
    """Images and labels of a pair, as arrays; those that are mapped from disk stay so."""
    if len(dataset) != 2:
        raise UserError(
            f"A tuple of length {len(dataset)} was given for {what}; give (images, labels)."
        )
    images, labels = (_array(part, what) for part in dataset)
    check_labels(labels, what, len(images))
    return images, labels


def check_repeatable(dataset: Any, what: str) -> Array:
    """The first image of a torch Dataset, which must be the same each time it is read."""
    if isinstance(dataset, IterableDataset) or not (
        hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    ):
        raise UserError(
            f"An object of type {type(dataset).__name__} was given for {what}, which has no "
            "length or no random access; give a map-style torch Dataset or (images, labels)."
        )
    if not len(dataset):
        raise UserError(f"There are no samples in {what}.")
    first, again = _sample(dataset, 0, what)[0], _sample(dataset, 0, what)[0]
    if first.shape != again.shape or not np.array_equal(
        first, again, equal_nan=first.dtype != object
    ):
        raise UserError(
            f"Sample 0 of {what} differs each time it is read; remove random augmentation from the "
            "data set's transform (the loader augments)."
        )
    return first


def read_sample(dataset: Any, position: int, what: str, first: Array) -> tuple[Array, Any]:
    """Image and label of a sample; the image must be of the shape and type of the `first`."""
    image, label = _sample(dataset, position, what)
    if image.shape != first.shape or image.dtype != first.dtype:
        raise UserError(
            f"Sample {position} of {what} is {image.shape} of {image.dtype}, sample 0 is "
            f"{first.shape} of {first.dtype}; convert them to one shape and type."
        )
    return image, label


def _sample(dataset: Any, position: int, what: str) -> tuple[Array, Any]:
    sample = dataset[position]
    if not isinstance(sample, (tuple, list)) or len(sample) != 2:
        raise UserError(
            f"Sample {position} of {what} is not a pair (image, label); give a tuple (images, "
            "labels), or a torch Dataset of such pairs."
        )
    image, label = sample
    if isinstance(label, Tensor):
        label = label.numpy()
    if np.ndim(label) != 0:
        raise UserError(
            f"The label {label!r} of sample {position} of {what} is not a single number."
        )
    return _array(image, f"sample {position} of {what}"), label


def _array(value: Any, what: str) -> Array:
    """A tensor, a PIL image, an array, or a list of such."""
    if isinstance(value, Tensor):
        array = value.detach().cpu().numpy()
    elif hasattr(value, "convert") and hasattr(value, "getbands"):  # a PIL image
        if value.mode not in EIGHT_BIT:
            raise UserError(
                f"There is a PIL image of mode {value.mode!r} in {what}; convert it to 'L' or "
                "'RGB'."
            )
        array = np.asarray(value if value.mode == "L" else value.convert("RGB"))
    else:
        try:
            listed = isinstance(value, (list, tuple)) and len(value) > 0
            plain = not listed or isinstance(value[0], (int, float, list, tuple))
            array = np.asarray(value if plain else [_array(entry, what) for entry in value])
        except ValueError as error:
            raise UserError(
                f"The entries of a list in {what} are not of one shape ({error}); resize them."
            ) from None
    if array.dtype.kind not in "uifb":
        raise UserError(f"There is an array of {array.dtype} in {what}; give numbers.")
    return array


def channels_first(images: Array, layout: str | None) -> Array:
    """A view of images as N×C×H×W; the layout is inferred from the shape if it is None."""
    layout, shape = layout_of(images.shape, layout), images.shape
    if len(shape) != LAYOUTS[layout] or 0 in shape[1:]:
        raise UserError(f"Images of shape {shape} are not laid out as {layout}.")
    if layout == "NHW":
        return images[:, None]
    return images.transpose(0, 3, 1, 2) if layout == "NHWC" else images


def layout_of(shape: tuple[int, ...], layout: str | None) -> str:
    """The layout of images: the one that is named, or the one that their shape suggests."""
    return _guess(shape) if layout is None else layout


def _guess(shape: tuple[int, ...]) -> str:
    if len(shape) == 3:
        return "NHW"
    if len(shape) != 4:
        raise UserError(f"Images of shape {shape} are not N×H×W, N×H×W×C or N×C×H×W.")
    first, last = shape[1] in CHANNELS, shape[3] in CHANNELS
    if first == last:
        raise UserError(
            f"Images of shape {shape} may have channels first or last; specify "
            "layout='NCHW' or layout='NHWC'."
        )
    return "NCHW" if first else "NHWC"


def check_pixels(images: Array, what: str, numbers: Sequence[int] | None = None) -> Tensor:
    """Images as uint8 or float32; other types and non-finite pixels are a `UserError`.

    Args:
        images: Images as N×C×H×W.
        what: What they belong to, for messages.
        numbers: Their positions there, if `images` is a selection.
    """
    if images.dtype.kind == "f":
        with np.errstate(over="ignore"):  # overflow becomes inf, which is refused
            images = np.ascontiguousarray(images, dtype=np.float32)
        for start in range(0, len(images), BLOCK):
            finite = np.isfinite(images[start : start + BLOCK]).all(axis=(1, 2, 3))
            if not finite.all():
                invalid = start + int(finite.argmin())
                raise UserError(
                    f"Image {invalid if numbers is None else numbers[invalid]} of {what} has "
                    "non-finite pixels; repair or remove it."
                )
    elif images.dtype != np.uint8:
        raise UserError(
            f"The images of {what} are {images.dtype}; convert them to uint8 (0..255) or float32."
        )
    with warnings.catch_warnings():
        # Read-only arrays are fine: images are never modified.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(images))


def check_labels(labels: Array, what: str, images: int) -> Array:
    """One class number for each image, as int64."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or (len(labels) and labels.dtype.kind not in "ui"):
        raise UserError(
            f"The labels of {what} are {labels.dtype} of shape {labels.shape}; give one "
            "integer per image."
        )
    invalid = (labels < 0) | (labels >= MOST_CLASSES)
    if invalid.any():
        position = int(invalid.argmax())
        raise UserError(
            f"The label {labels[position]} of sample {position} of {what} is out of range; number "
            "the classes from 0."
        )
    if images != len(labels):
        raise UserError(
            f"There are {images} images but {len(labels)} labels in {what}; give as many."
        )
    if not images:
        raise UserError(f"There are no samples in {what}.")
    return labels.astype(np.int64)
