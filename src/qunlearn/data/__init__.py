"""Data sets, the split into parts, and batches."""

from qunlearn.data.arrays import Data, as_image_data
from qunlearn.data.dataset import Augmentation, ImageData
from qunlearn.data.ids import read_ids
from qunlearn.data.load import load_dataset
from qunlearn.data.loader import Batch, Loader
from qunlearn.data.manifest import Request
from qunlearn.data.parts import Outcome
from qunlearn.data.sources import sources
from qunlearn.data.split import Split

__all__ = [
    "Augmentation",
    "Batch",
    "Data",
    "ImageData",
    "Loader",
    "Outcome",
    "Request",
    "Split",
    "as_image_data",
    "load_dataset",
    "read_ids",
    "sources",
]
