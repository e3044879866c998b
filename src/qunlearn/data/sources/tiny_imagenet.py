"""Tiny-ImageNet, 200 classes of 64×64 pixels, in its folder layout."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from qunlearn.data.dataset import Augmentation, ImageData
from qunlearn.data.sources.catalogue import Catalogue
from qunlearn.data.sources.decode import check_inside, check_plain, decode, decode_files
from qunlearn.data.sources.locate import Archive, locate
from qunlearn.data.sources.registry import SourceOptions, sources
from qunlearn.errors import UserError
from qunlearn.store.files import read

SIZE = (64, 64)
MEAN, STD = (0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)
ANNOTATIONS = "val/val_annotations.txt"
_WANTED = re.compile(
    r"wnids\.txt|words\.txt|val/val_annotations\.txt|val/images/\w+\.JPEG"
    r"|train/n\d+/images/\w+\.JPEG"
)
ORIGIN = Archive(
    url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    md5="90528d7ca1a48142e341f4ef8d21d0de",
    folder="tiny-imagenet-200",
    wanted=lambda path: _WANTED.fullmatch(path) is not None,
)


@sources.register("tiny-imagenet")
def tiny_imagenet(options: SourceOptions) -> ImageData:
    """110,000 labelled images; the labelled validation images are the test part."""
    folder = locate("tiny-imagenet", options, ORIGIN, ("wnids.txt", "train", ANNOTATIONS))
    for name in ("wnids.txt", "words.txt", "train", "val", "val/images", ANNOTATIONS):
        check_inside(folder, folder / name)
    wnids = _lines(folder / "wnids.txt")
    number = {wnid: label for label, wnid in enumerate(wnids)}
    files, labels, ids = [], [], []
    for wnid in wnids:
        check_plain(wnid, folder / "wnids.txt")
        images = folder / "train" / wnid / "images"
        check_inside(folder, images.parent, images)
        if not images.is_dir():
            raise UserError(
                f"The folder {str(images)!r} is missing though wnids.txt names {wnid!r}; unpack "
                "tiny-imagenet-200.zip again."
            )
        for file in sorted(images.glob("*.JPEG")):
            files.append(file)
            labels.append(number[wnid])
            ids.append(f"train/{file.name}")
    train = len(files)
    for line in _lines(folder / ANNOTATIONS):
        file_name, wnid = (*line.split("\t"), "", "")[:2]
        check_plain(file_name, folder / ANNOTATIONS)
        file = folder / "val" / "images" / file_name
        if wnid not in number or not file.is_file():
            raise UserError(
                f"The line {line!r} of {str(folder / ANNOTATIONS)!r} names an unknown class or a "
                "file that is missing; unpack tiny-imagenet-200.zip again."
            )
        files.append(file)
        labels.append(number[wnid])
        ids.append(f"test/{file_name}")
    if not 0 < train < len(files):
        raise UserError(f"There are no images in {str(folder)!r}; unpack the archive again.")
    for file in files:
        check_inside(folder, file)
    catalogue = Catalogue(
        name="tiny-imagenet",
        labels=torch.tensor(labels),
        ids=ids,
        is_test=torch.arange(len(files)) >= train,
        classes=_class_names(wnids, folder / "words.txt"),
    )
    wanted = catalogue.wanted(options)
    blocks = decode_files([files[row] for row in wanted.tolist()], SIZE)
    pixels, _ = decode("tiny-imagenet", options, wanted, (3, *SIZE), blocks, folder, files)
    return catalogue.data(wanted, pixels, MEAN, STD, Augmentation(crop=8, flip=True))


def _class_names(wnids: list[str], path: Path) -> tuple[str, ...]:
    """The first word for each class, with its number where two classes share a word."""
    if not path.exists():
        return tuple(wnids)
    words = {wnid: word for wnid, _, word in (line.partition("\t") for line in _lines(path))}
    names = [words.get(wnid, "").split(",")[0].strip() or wnid for wnid in wnids]
    return tuple(
        name if names.count(name) == 1 else f"{name} ({wnid})"
        for name, wnid in zip(names, wnids, strict=True)
    )


def _lines(path: Path) -> list[str]:
    lines: list[str] = read(path, str.splitlines, "text")
    return [line for line in lines if line.strip()]
