"""Street View House Numbers, cropped digits of 32×32 pixels, in the official .mat files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qunlearn.data.dataset import Augmentation, ImageData
from qunlearn.data.memory import check_growth, check_memory
from qunlearn.data.sources.catalogue import Catalogue
from qunlearn.data.sources.decode import Bytes, check_inside, decode
from qunlearn.data.sources.locate import Plain, locate
from qunlearn.data.sources.registry import SourceOptions, sources
from qunlearn.errors import UserError

MEAN, STD = (0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)
BLOCK = 1000  # images per copy
FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}
ORIGIN = Plain(
    base="http://ufldl.stanford.edu/housenumbers/",
    md5={
        "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
        "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    },
    folder="svhn",
)


@sources.register("svhn")
def svhn(options: SourceOptions) -> ImageData:
    """99,289 digits from house numbers; the label 10 of the files stands for the digit 0."""
    folder = locate("svhn", options, ORIGIN, tuple(FILES.values()))
    paths = {part: folder / file for part, file in FILES.items()}
    check_inside(folder, *paths.values())
    labels = {part: _labels(path, _count(path)) for part, path in paths.items()}
    counts = {part: len(numbers) for part, numbers in labels.items()}
    total = sum(counts.values())
    catalogue = Catalogue(
        name="svhn",
        labels=torch.from_numpy(np.concatenate(list(labels.values()))),
        ids=[f"{part}/{number}" for part in FILES for number in range(counts[part])],
        is_test=torch.arange(total) >= counts["train"],
        classes=tuple("0123456789"),
    )
    wanted = catalogue.wanted(options)
    files = list(paths.values())
    blocks = _images(files, list(counts.values()), wanted)
    images, _ = decode("svhn", options, wanted, (3, 32, 32), blocks, folder, files)
    # Digits must not be mirrored.
    return catalogue.data(wanted, images, MEAN, STD, Augmentation(crop=4))


def _images(files: list[Path], counts: list[int], wanted: Tensor) -> Iterator[Bytes]:
    first = 0
    for path, count in zip(files, counts, strict=True):
        pixels = _read(path, "X")["X"].transpose(3, 2, 0, 1)
        rows = wanted[(wanted >= first) & (wanted < first + count)] - first
        # Copied in blocks: a copy of all would take as much memory again.
        for block in torch.split(rows, BLOCK):
            yield pixels[block.numpy()]
        first += count


def _labels(path: Path, count: int) -> Any:
    labels = np.asarray(_read(path, "y").get("y", ()))
    if labels.dtype.kind not in "ui" or len(labels) != count:
        raise _wrong(path, f"it has no labels 'y', one for each of the {count} images")
    if labels.min() < 1 or labels.max() > 10:
        raise _wrong(path, "it has no labels 'y' from 1 to 10")
    return labels.reshape(-1).astype(np.int64) % 10


def _count(path: Path) -> int:
    """The number of images that the file declares, checked before any is read."""
    from scipy.io import whosmat

    with _damage_reported(path):
        declared = {name: (shape, kind) for name, shape, kind in whosmat(path)}
    shape, kind = declared.get("X", ((), ""))
    if len(shape) != 4 or shape[:3] != (32, 32, 3) or kind != "uint8":
        raise _wrong(path, "it has no images 'X' of 32×32×3 bytes each")
    if math.prod(declared.get("y", ((), ""))[0]) != shape[3] or not shape[3]:
        raise _wrong(path, f"it has no labels 'y', one for each of the {shape[3]} images")
    check_growth(math.prod(shape), path)
    check_memory(math.prod(shape), f"The file {str(path)!r}", "use a machine with more of it")
    return int(shape[3])


def _read(path: Path, name: str) -> dict[str, Any]:
    from scipy.io import loadmat

    with _damage_reported(path):
        content: dict[str, Any] = loadmat(path, variable_names=[name])
    return content


@contextmanager
def _damage_reported(path: Path) -> Iterator[None]:
    """Whatever the reader of .mat files raises, as a `UserError` about the file."""
    try:
        yield
    except Exception as error:  # TypeError, IndexError, zlib.error, ...
        raise _wrong(path, f"{type(error).__name__}: {error}") from None


def _wrong(path: Path, fault: str) -> UserError:
    return UserError(
        f"The file {str(path)!r} is truncated, corrupt or not from SVHN ({fault}); delete it and "
        "fetch it again, by hand or with --download."
    )
