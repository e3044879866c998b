"""Predictions of an exported file for image files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from qunlearn.data.sources.decode import read_image
from qunlearn.errors import UserError
from qunlearn.export.network import OnnxNetwork
from qunlearn.store.files import as_written

Shares = dict[str, float]
"""The probability of each class, the most probable first."""


def predict_images(file: Path, images: Sequence[Path]) -> list[Shares | UserError]:
    """The class probabilities of each image file, or the error of a file that cannot be read.

    Images are resized to the input size of the network, and converted to grey if it takes that.
    """
    network = OnnxNetwork.open(file)
    if not {"classes", "mean", "std"} <= network.about.keys() or len(network.input.shape) != 4:
        raise UserError(
            f"The file {str(file)!r} has no class names or normalisation; export it from a run, or "
            "in Python with a split."
        )
    if network.about.get("pixels", "uint8") != "uint8":
        raise UserError(
            f"The network in {str(file)!r} takes floating-point images, and image files do not say "
            "in which unit; run it on your own arrays."
        )
    if network.input.shape[1] not in (1, 3):
        raise UserError(
            f"The network in {str(file)!r} takes images of {network.input.shape[1]} channels, and "
            "image files have 1 or 3 here; run it on your own arrays."
        )
    channels = network.input.shape[1]
    with as_written(file):
        about = network.about
        mean, std = (torch.tensor(about[key]).view(channels, 1, 1) for key in ("mean", "std"))
        classes = [str(name) for name in about["classes"]]
    return [_shares(network, image, mean, std, classes) for image in images]


def _shares(
    network: OnnxNetwork, image: Path, mean: Tensor, std: Tensor, classes: Sequence[str]
) -> Shares | UserError:
    channels, *size = network.input.shape[1:]
    if not image.is_file():
        return UserError(f"There is no image {str(image)!r}; check the path.")
    try:
        pixels = read_image(image, (size[0], size[1]), resize=True)
    except UserError as error:
        return error
    if channels == 1:  # the weights of ITU-R BT.601
        pixels = (pixels @ np.array([0.299, 0.587, 0.114]))[..., None]
    x = torch.from_numpy(pixels / 255).float().permute(2, 0, 1)
    shares = network(((x - mean) / std)[None]).softmax(1)[0]
    order = shares.argsort(descending=True).tolist()
    return {classes[i]: float(shares[i]) for i in order if i < len(classes)}
