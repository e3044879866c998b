"""Files of small data sets, written byte by byte."""

from __future__ import annotations

import dataclasses
import struct

import numpy as np
from PIL import Image

from qunlearn.data.sources import cifar


def write_cifar10(folder, label=lambda number: number % 10):
    folder.mkdir(parents=True, exist_ok=True)
    files = [f"data_batch_{k}.bin" for k in range(1, 6)] + ["test_batch.bin"]
    for place, name in enumerate(files):
        content = b""
        for record in range(3):
            number = place * 3 + record
            red, green, blue = (bytes([number + 1, c, 0] + [c] * 1021) for c in (10, 20, 30))
            content += struct.pack("B", label(number)) + red + green + blue
        (folder / name).write_bytes(content)


def write_svhn(folder, counts=(5, 3), **changes):
    from scipy.io import savemat

    chance = np.random.default_rng(0)
    for name, count in zip(("train", "test"), counts, strict=True):
        content = {
            "X": chance.integers(0, 256, (32, 32, 3, count), dtype=np.uint8),
            "y": np.array([[10 - k % 10] for k in range(count)], dtype=np.uint8),
        }
        savemat(folder / f"{name}_32x32.mat", {**content, **changes}, do_compression=True)


def picture(colour, size=(64, 64), mode="RGB"):
    return Image.new(mode, size, colour)


def write_cifar100(folder, names=True):
    for name, first in (("train.bin", 0), ("test.bin", 3)):
        records = [bytes([k + first, 90 + k + first]) + bytes([k]) * 3072 for k in range(3)]
        (folder / name).write_bytes(b"".join(records))
    for file, mark, count in (("coarse", "c", 20), ("fine", "f", 100)) if names else ():
        text = "\n".join(f"{mark}{k}" for k in range(count))
        (folder / f"{file}_label_names.txt").write_text(text)


def write_tiny_imagenet(folder):
    """Below the folder, as the official archive has it."""
    base = folder / "tiny-imagenet-200"
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


def write_photos(folder):
    chance = np.random.default_rng(0)
    for part, count in (("train", 4), ("test", 2)):
        for name in ("dog", "cat"):
            (folder / part / name).mkdir(parents=True)
            for k in range(count):
                pixels = chance.integers(0, 256, (10, 12, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{k}.png")


def few_records(monkeypatch):
    """CIFAR with 3 records per file."""
    for name in ("CIFAR10", "CIFAR100"):
        layout = getattr(cifar, name)
        small = dataclasses.replace(
            layout, train=dict.fromkeys(layout.train, 3), test=dict.fromkeys(layout.test, 3)
        )
        monkeypatch.setattr(cifar, name, small)
