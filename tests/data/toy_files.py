"""Files of small data sets, written byte by byte."""

from __future__ import annotations

import struct

import numpy as np
from PIL import Image


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
