"""Data sources, one file each; importing a file registers its source."""

from qunlearn.data.sources import cifar, digits, folder, npz, svhn, tiny_imagenet
from qunlearn.data.sources.registry import Source, SourceOptions, sources

__all__ = [
    "Source",
    "SourceOptions",
    "cifar",
    "digits",
    "folder",
    "npz",
    "sources",
    "svhn",
    "tiny_imagenet",
]
