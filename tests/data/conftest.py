from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from data.toy_data import make_data
from data.toy_files import picture
from PIL import Image

from qunlearn.data import ImageData
from qunlearn.data.sources import cifar


@pytest.fixture
def toy() -> ImageData:
    """40 training samples, ten of each class, and 8 test samples."""
    return make_data([k % 4 for k in range(40)], [k % 4 for k in range(8)])


@pytest.fixture
def few(monkeypatch):
    """CIFAR with 3 records per file."""
    for name in ("CIFAR10", "CIFAR100"):
        layout = getattr(cifar, name)
        small = dataclasses.replace(
            layout, train=dict.fromkeys(layout.train, 3), test=dict.fromkeys(layout.test, 3)
        )
        monkeypatch.setattr(cifar, name, small)


@pytest.fixture
def tiny(tmp_path):
    base = tmp_path / "tiny-imagenet-200"
    for wnid in ("n2", "n1"):
        (base / "train" / wnid / "images").mkdir(parents=True)
        for k in range(3):
            name = f"{wnid}_{k}.JPEG"
            mode, colour = ("L", 77) if k == 2 else ("RGB", (40 * k, 90, int(wnid[1]) * 50))
            picture(colour, mode=mode).save(base / "train" / wnid / "images" / name, "JPEG")
    (base / "val" / "images").mkdir(parents=True)
    for k in range(2):
        picture((200, k, 0)).save(base / "val" / "images" / f"val_{k}.JPEG", "JPEG")
    (base / "wnids.txt").write_text("n2\nn1\n")
    (base / "words.txt").write_text("n1\tcrane, bird\nn2\tcrane, machine\nn3\tother\n")
    (base / "val" / "val_annotations.txt").write_text(
        "val_0.JPEG\tn1\t0\t0\t1\t1\nval_1.JPEG\tn2\t0\t0\t1\t1\n"
    )
    return base


@pytest.fixture
def photos(tmp_path):
    base = tmp_path / "photos"
    chance = np.random.default_rng(0)
    for part, count in (("train", 4), ("test", 2)):
        for name in ("dog", "cat"):
            (base / part / name).mkdir(parents=True)
            for k in range(count):
                pixels = chance.integers(0, 256, (10, 12, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(base / part / name / f"{k}.png")
    return base
