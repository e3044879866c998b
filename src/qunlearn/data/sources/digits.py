"""Handwritten digits, 8×8 pixels, that come with scikit-learn: real data without a download."""

from __future__ import annotations

import numpy as np
import torch

from qunlearn.data.dataset import Augmentation, ImageData
from qunlearn.data.draw import shuffled
from qunlearn.data.sources.registry import SourceOptions, sources
from qunlearn.errors import UserError


@sources.register("digits")
def digits(options: SourceOptions) -> ImageData:
    """The 1,797 digits; a quarter of each class, always the same, is the test part."""
    from sklearn.datasets import load_digits

    if options.data_dir is not None or options.download:
        raise UserError(
            "The digits come with scikit-learn; leave out --data-dir, --data and --download."
        )

    table = load_digits()
    labels = np.asarray(table.target)
    test = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        rows = np.flatnonzero(labels == digit)
        order = shuffled([str(row) for row in rows], "digits", digit)
        test[rows[order[: round(len(rows) / 4)]]] = True
    # The grey levels are 0..16; stretched so that the full range of a byte is used.
    images = np.minimum(np.asarray(table.images) * 16, 255).astype(np.uint8)
    return ImageData(
        name="digits",
        images=torch.from_numpy(images[:, None]),
        labels=torch.from_numpy(labels.astype(np.int64)),
        ids=tuple(f"{'test' if test[row] else 'train'}/{row}" for row in range(len(labels))),
        is_test=torch.from_numpy(test),
        classes=tuple("0123456789"),
        mean=(0.3062,),
        std=(0.3771,),
        augmentation=Augmentation(crop=1),
    )
