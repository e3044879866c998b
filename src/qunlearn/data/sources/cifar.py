"""CIFAR-10 and CIFAR-100 in their official binary version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from qunlearn.data.dataset import Augmentation, ImageData
from qunlearn.data.sources.catalogue import Catalogue
from qunlearn.data.sources.decode import Bytes, check_inside, decode
from qunlearn.data.sources.locate import Archive, locate
from qunlearn.data.sources.registry import SourceOptions, sources
from qunlearn.errors import UserError
from qunlearn.store.files import read

BLOCK = 1000  # records per read
PIXELS = 3 * 32 * 32
CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
)


@dataclass(frozen=True)
class _Layout:
    name: str
    folder: str
    train: dict[str, int]  # records in each file
    test: dict[str, int]
    label_bytes: int
    names: tuple[str, ...]  # files with class names, one per label byte
    sizes: tuple[int, ...]  # number of classes, one per label byte
    mean: tuple[float, ...]
    std: tuple[float, ...]
    md5: str
    archive: str

    @property
    def files(self) -> dict[str, int]:
        return {**self.train, **self.test}


CIFAR10 = _Layout(
    name="cifar10",
    folder="cifar-10-batches-bin",
    train={f"data_batch_{number}.bin": 10_000 for number in range(1, 6)},
    test={"test_batch.bin": 10_000},
    label_bytes=1,
    names=("batches.meta.txt",),
    sizes=(10,),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    md5="c32a1d4ab5d03f1284b67883e8d87530",
    archive="cifar-10-binary.tar.gz",
)
CIFAR100 = _Layout(
    name="cifar100",
    folder="cifar-100-binary",
    train={"train.bin": 50_000},
    test={"test.bin": 10_000},
    label_bytes=2,
    names=("coarse_label_names.txt", "fine_label_names.txt"),
    sizes=(20, 100),
    mean=(0.5071, 0.4866, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    md5="03b5dce01913d631647c71ecec9e9cb8",
    archive="cifar-100-binary.tar.gz",
)


@sources.register("cifar10")
def cifar10(options: SourceOptions) -> ImageData:
    """60,000 colour images of 32×32 pixels in 10 classes."""
    return _load(CIFAR10, options)


@sources.register("cifar100")
def cifar100(options: SourceOptions) -> ImageData:
    """60,000 colour images of 32×32 pixels in 100 classes, with the 20 coarse ones as metadata."""
    return _load(CIFAR100, options)


def _load(layout: _Layout, options: SourceOptions) -> ImageData:
    archive = Archive(
        url=f"https://www.cs.toronto.edu/~kriz/{layout.archive}",
        md5=layout.md5,
        folder=layout.folder,
        wanted=lambda path: path in layout.files or path in layout.names,
    )
    folder = locate(layout.name, options, archive, tuple(layout.files))
    check_inside(folder, *(folder / name for name in (*layout.files, *layout.names)))
    labels = np.concatenate([_labels(folder / name, layout) for name in layout.files])
    parts = {"train": sum(layout.train.values()), "test": sum(layout.test.values())}
    names = [
        _names(folder / name, size) for name, size in zip(layout.names, layout.sizes, strict=True)
    ]
    coarse = {"coarse": tuple(names[0][label] for label in labels[:, 0].tolist())}
    catalogue = Catalogue(
        name=layout.name,
        labels=torch.from_numpy(labels[:, -1].astype(np.int64)),
        ids=[f"{part}/{number}" for part, size in parts.items() for number in range(size)],
        is_test=torch.arange(len(labels)) >= parts["train"],
        classes=names[-1],
        metadata=coarse if layout.label_bytes == 2 else {},
    )
    wanted = catalogue.wanted(options)
    files = [folder / name for name in layout.files]
    blocks = _images(files, layout, wanted)
    images, _ = decode(layout.name, options, wanted, (3, 32, 32), blocks, folder, files)
    augmentation = Augmentation(crop=4, flip=True)
    return catalogue.data(wanted, images, layout.mean, layout.std, augmentation)


def _labels(path: Path, layout: _Layout) -> Bytes:
    """The label bytes of each record of a file."""
    count, width = layout.files[path.name], layout.label_bytes + PIXELS
    expected, size = count * width, path.stat().st_size
    if size != expected:
        fault = "truncated" if size < expected else "not the official binary version"
        raise UserError(
            f"The file {str(path)!r} is {fault}: it has {size:,} bytes instead of {expected:,}; "
            f"unpack it again from {layout.archive}, or delete it and use --download."
        )
    rows = [block[:, : layout.label_bytes].copy() for block in _records(path, layout)]
    labels = np.concatenate(rows)
    bad = (labels >= np.array(layout.sizes)).any(axis=1)
    if bad.any():
        record = int(bad.argmax())
        raise UserError(
            f"The file {str(path)!r} is corrupt: record {record} has the label "
            f"{labels[record].tolist()}; unpack it again from {layout.archive}."
        )
    return labels


def _images(files: Sequence[Path], layout: _Layout, wanted: Tensor) -> Iterator[Bytes]:
    first = 0
    for path in files:
        for block in _records(path, layout):
            rows = wanted[(wanted >= first) & (wanted < first + len(block))] - first
            yield block[rows.numpy(), layout.label_bytes :].reshape(-1, 3, 32, 32)
            first += len(block)


def _records(path: Path, layout: _Layout) -> Iterator[Bytes]:
    """The records of a file, in blocks."""
    width = layout.label_bytes + PIXELS
    try:
        with path.open("rb") as file:
            while content := file.read(BLOCK * width):
                yield np.frombuffer(content, dtype=np.uint8).reshape(-1, width)
    except (OSError, ValueError) as error:
        raise UserError(f"The file {str(path)!r} cannot be read: {error}.") from None


def _names(path: Path, count: int) -> tuple[str, ...]:
    if not path.exists():
        if count == 10:
            return CIFAR10_CLASSES
        raise UserError(
            f"The file {str(path)!r} with the class names is missing; unpack it from the archive "
            "that the other files came from."
        )
    names: list[str] = read(path, str.split, "text")
    if len(names) != count or len(set(names)) != count:
        raise UserError(
            f"The file {str(path)!r} has {len(names)} class names instead of {count} different "
            "ones; unpack it again from the archive."
        )
    return tuple(names)
