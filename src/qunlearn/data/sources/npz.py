"""Arrays in an .npz file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qunlearn.data.arrays import Data, checked_augmentation
from qunlearn.data.dataset import ImageData
from qunlearn.data.mapped import as_floats
from qunlearn.data.samples import LAYOUTS, Array, channels_first, check_pixels
from qunlearn.data.sources.catalogue import Catalogue
from qunlearn.data.sources.decode import Bytes, decode, safe_name
from qunlearn.data.sources.moments import Moments
from qunlearn.data.sources.registry import SourceOptions, sources
from qunlearn.data.sources.zipped import Member, members
from qunlearn.errors import UserError, unknown

IMAGES = {"x_train": "the training part", "x_test": "the test part"}
KNOWN = (
    *("x_train", "y_train", "x_test", "y_test", "id_train", "id_test", "classes", "layout"),
    *("mean", "std", "crop", "flip", "meta_train_COLUMN", "meta_test_COLUMN"),
)
TRAIN, TEST = "meta_train_", "meta_test_"
"""Prefix of the names of metadata columns."""


@sources.register("npz")
def npz(options: SourceOptions) -> ImageData:
    """A file with the arrays x_train and y_train, and perhaps x_test and y_test.

    It may also hold id_train and id_test (the samples' ids), classes (their names), layout (NHW,
    NHWC or NCHW, where the shape of the images leaves it open), mean and std, crop and flip (how to
    augment), and columns of metadata, as meta_train_user and meta_test_user. See `Data`.
    """
    path = options.data_dir
    if path is None:
        raise UserError("The data set 'npz' needs a file; name it with --data-dir FILE.npz.")
    parts, arrays = _arrays(path)
    layout = str(arrays["layout"]) if "layout" in arrays else None
    if layout not in (None, *LAYOUTS):
        raise UserError(f"The layout {layout!r} is unknown; choose NHW, NHWC or NCHW.")
    size = _size(parts, layout, options)
    about = _without_pixels(path, parts, layout, arrays)
    catalogue = Catalogue(
        about.name, about.labels, about.ids, about.is_test, about.classes, about.metadata
    )
    wanted = catalogue.wanted(options)
    blocks = _blocks(parts, layout, wanted)
    in_bytes, moments = about.images.dtype == torch.uint8, Moments(about.channels)
    computed = in_bytes and "mean" not in arrays
    if computed:
        blocks = moments.of(blocks, ~about.is_test[wanted])
    # Floating-point images are stored as their raw bytes.
    image = (about.channels, size[0], size[1] * about.images.element_size())
    notes = moments.result if computed else lambda: None
    pixels, kept = decode(safe_name(path.stem), options, wanted, image, blocks, path, [path], notes)
    mean, std = kept if computed else (about.mean, about.std)
    images = pixels if in_bytes else as_floats(pixels)
    augment: dict[str, Any] = {n: _single(arrays, n) for n in ("crop", "flip") if n in arrays}
    return catalogue.data(wanted, images, mean, std, checked_augmentation(augment, min(size)))


def _arrays(path: Path) -> tuple[dict[str, Member], dict[str, Array]]:
    """The image arrays of each part, unread, and all other arrays."""
    entries = members(path)
    for name in entries:
        if name not in KNOWN and not name.startswith((TRAIN, TEST)):
            raise unknown(f"array in {str(path)!r}", name, KNOWN)
    for name in ("x_train", "y_train"):
        if name not in entries:
            raise UserError(f"The file {str(path)!r} has no array {name!r}; add it.")
    if ("x_test" in entries) != ("y_test" in entries):
        raise UserError(f"The file {str(path)!r} has only one of x_test and y_test; add the other.")
    parts = {name: entries[name] for name in IMAGES if name in entries}
    arrays = {name: entries[name].read() for name in entries if name not in IMAGES}
    for name, array in arrays.items():
        _check_letters(name, array)
    return parts, arrays


def to_arrays(data: ImageData) -> dict[str, NDArray[Any]]:
    """The data set as arrays for an .npz file."""
    arrays: dict[str, NDArray[Any]] = {
        "classes": np.array(data.classes, dtype=str),
        "layout": np.array("NCHW"),
        "mean": np.array(data.mean),
        "std": np.array(data.std),
        "crop": np.array(data.augmentation.crop),
        "flip": np.array(data.augmentation.flip),
    }
    for part, mask in {"train": ~data.is_test, "test": data.is_test}.items():
        rows = mask.nonzero().flatten()
        if part == "test" and not len(rows):
            continue
        arrays[f"x_{part}"] = _at(data.images, rows).numpy()
        arrays[f"y_{part}"] = data.labels[rows].numpy()
        arrays[f"id_{part}"] = np.array([data.ids[row] for row in rows], dtype=str)
        for column, cells in data.metadata.items():
            name = f"{TRAIN if part == 'train' else TEST}{column}"
            arrays[name] = np.array([cells[row] for row in rows], dtype=str)
    return arrays


def _at(images: Tensor, rows: Tensor) -> Tensor:
    """The images at these ascending rows; if nothing is between them, without a copy."""
    first, last = int(rows[0]), int(rows[-1])
    return images[first : last + 1] if last - first == len(rows) - 1 else images[rows]


def _size(
    parts: Mapping[str, Member], layout: str | None, options: SourceOptions
) -> tuple[int, int]:
    """Height and width, on which the parts must agree; raises if some cannot be read in blocks."""
    shapes = {}
    for name, member in parts.items():
        if member.fortran and member.size > options.memory_budget:
            raise UserError(
                f"The array {name!r} in {str(member.path)!r} is too large to be read in Fortran "
                f"order; save numpy.ascontiguousarray({name}) instead."
            )
        shapes[name] = channels_first(_blank(member), layout).shape[1:]
    if len(set(shapes.values())) > 1:
        spelt = [" by ".join(map(str, shape)) for shape in shapes.values()]
        raise UserError(
            f"Training images are {spelt[0]} and test images {spelt[1]}; they must be of one size."
        )
    _, height, width = shapes["x_train"]
    return height, width


def _without_pixels(
    path: Path, parts: Mapping[str, Member], layout: str | None, arrays: Mapping[str, Any]
) -> ImageData:
    """Everything but the pixels, checked as arrays in memory are; each image is a black pixel."""
    pairs = [
        (channels_first(_blank(member), layout)[:, :, :1, :1], arrays[f"y_{name[2:]}"])
        for name, member in parts.items()
    ]
    return Data(
        *pairs,
        layout="NCHW",
        name=path.stem,
        classes=_texts(arrays, "classes"),
        ids=_texts(arrays, "id_train"),
        test_ids=_texts(arrays, "id_test"),
        metadata=_columns(arrays, TRAIN),
        test_metadata=_columns(arrays, TEST) if "x_test" in parts else None,
        mean=arrays.get("mean"),
        std=arrays.get("std"),
    )


def _blank(member: Member) -> Array:
    """A placeholder of the same shape that takes no memory."""
    return np.broadcast_to(np.zeros((), dtype=member.dtype), member.shape)


def _blocks(parts: Mapping[str, Member], layout: str | None, wanted: Tensor) -> Iterator[Bytes]:
    """The wanted images as N×C×H×W; floating-point ones as their raw bytes."""
    first = 0
    for name, member in parts.items():
        count = member.shape[0]
        rows = (wanted[(wanted >= first) & (wanted < first + count)] - first).tolist()
        done = 0
        for block in [member.read()[rows]] if member.fortran else member.blocks(rows):
            numbers = rows[done : done + len(block)]
            pixels = check_pixels(channels_first(block, layout), IMAGES[name], numbers)
            yield pixels.numpy().view(np.uint8)
            done += len(block)
        first += count


def _columns(arrays: Mapping[str, Any], start: str) -> dict[str, Any]:
    names = [name for name in arrays if name.startswith(start)]
    return {name.removeprefix(start): _texts(arrays, name) for name in names}


def _check_letters(name: str, array: Any) -> None:
    """Raise if an array of strings has code points that are not Unicode characters."""
    if array.dtype.kind == "U" and array.nbytes:
        numbers = np.frombuffer(array.tobytes(), np.dtype("u4").newbyteorder(array.dtype.byteorder))
        if numbers.max() > sys.maxunicode:
            raise UserError(
                f"The array {name!r} has code points that are not Unicode characters; write it "
                "again."
            )


def _single(arrays: Mapping[str, Any], name: str) -> Any:
    if arrays[name].ndim:
        raise UserError(f"The array {name!r} must be a single value, not {arrays[name].shape}.")
    return arrays[name].item()


def _texts(arrays: Mapping[str, Any], name: str) -> list[str] | None:
    if name not in arrays:
        return None
    texts = arrays[name]
    if texts.ndim != 1 or texts.dtype.kind != "U":
        raise UserError(f"The array {name!r} must be a list of texts, not {texts.dtype}.")
    return [str(text) for text in texts]
