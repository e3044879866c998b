"""Any folder of images with one folder per class."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch

from qunlearn.data.dataset import Augmentation, ImageData
from qunlearn.data.sources.catalogue import Catalogue
from qunlearn.data.sources.decode import check_inside, decode, decode_files, safe_name, size_of
from qunlearn.data.sources.moments import Moments
from qunlearn.data.sources.registry import SourceOptions, sources
from qunlearn.errors import UserError

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
TEST_FOLDERS = ("test", "val", "validation", "valid")
LARGEST_SIDE = 8192


@sources.register("folder")
def folder(options: SourceOptions) -> ImageData:
    """A folder with `train/CLASS/*.png` and `test/CLASS/*.png` (or `val`), or just `CLASS/*.png`.

    In the second case, about a fifth of the images is the test part, by a hash of their path:
    whether an image belongs to it does not depend on which others there are.
    """
    base = options.data_dir
    if base is None:
        raise UserError("The data set 'folder' needs a folder; name it with --data-dir DIR.")
    if not base.is_dir():
        raise UserError(f"There is no folder {str(base)!r}; check the path.")
    samples, classes = _samples(base)
    catalogue = Catalogue(
        name=base.resolve().name,
        labels=torch.tensor([label for _, label, _ in samples]),
        ids=[_id(base, part, file) for part, _, file in samples],
        is_test=torch.tensor([part == "test" for part, _, _ in samples]),
        classes=classes,
    )
    wanted = catalogue.wanted(options)
    files = [file for _, _, file in samples]
    chosen = [files[row] for row in wanted.tolist()]
    size = _size(chosen[0], options.image_size)
    moments = Moments(channels=3)
    blocks = decode_files(chosen, size, resize=options.image_size is not None)
    counted = moments.of(blocks, ~catalogue.is_test[wanted])
    images, (mean, std) = decode(
        safe_name(base.name), options, wanted, (3, *size), counted, base, files, moments.result
    )
    augmentation = Augmentation(crop=max(1, min(size) // 8), flip=True)
    return catalogue.data(wanted, images, mean, std, augmentation)


def _samples(base: Path) -> tuple[list[tuple[str, int, Path]], tuple[str, ...]]:
    """Part, label and file of each image, and the class names."""
    if (base / "train").is_dir():
        parts = {"train": base / "train"}
        test_folders = [base / name for name in TEST_FOLDERS if (base / name).is_dir()]
        parts |= {"test": test_folders[0]} if test_folders else {}
        classes = _folders(base / "train")
    else:
        parts, classes = {"": base}, _folders(base)
    samples = []
    for part, place in parts.items():
        for name in _folders(place):
            if name not in classes:
                raise UserError(
                    f"The class {name!r} in {str(place)!r} has no folder below 'train'; add an "
                    "empty one there, or remove the class."
                )
            label = classes.index(name)
            check_inside(base, place, place / name)
            for file in _images(place / name):
                check_inside(base, file)
                samples.append((part or _hashed_part(file.relative_to(base)), label, file))
    if not any(part == "train" for part, _, _ in samples):
        raise UserError(
            f"There are no training images in {str(base)!r}: it should hold a folder per class, or "
            f"a folder 'train' of such folders, with files such as .png or .jpg in them."
        )
    return samples, tuple(classes)


def files_of(base: Path) -> dict[str, Path]:
    """The file of each sample in a folder of images, by its id."""
    return {_id(base, part, file): file for part, _, file in _samples(base)[0]}


def _hashed_part(path: Path) -> str:
    digest = hashlib.blake2b(path.as_posix().encode(errors="surrogateescape"), digest_size=8)
    return "test" if int.from_bytes(digest.digest(), "big") % 5 == 0 else "train"


def _folders(place: Path) -> list[str]:
    return sorted(p.name for p in place.iterdir() if p.is_dir() and not p.name.startswith("."))


def _images(place: Path) -> list[Path]:
    # Sorted by text, as on every system; a Path sorts without regard to case on some.
    return sorted(
        (p for p in place.rglob("*") if p.suffix.lower() in ENDINGS and p.is_file()),
        key=lambda path: path.as_posix(),
    )


def _id(base: Path, part: str, file: Path) -> str:
    inside = file.relative_to(base).parts
    # Below train/ or test/ the part is the first folder already.
    below = inside[1:] if (base / "train").is_dir() else inside
    name = "/".join((part, *below))
    if not name.isprintable():
        raise UserError(f"The file name {name!r} has unprintable characters; rename the file.")
    return name


def _size(first: Path, side: int | None) -> tuple[int, int]:
    if side is None:
        return size_of(first)
    if not 1 <= side <= LARGEST_SIDE:
        raise UserError(f"The image size is {side}; choose one from 1 to {LARGEST_SIDE} pixels.")
    return side, side
