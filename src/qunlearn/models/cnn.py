"""A small convolutional network, for demos and quick trials: it trains in seconds."""

from __future__ import annotations

from torch import nn

from qunlearn.models.registry import ImageShape, models, scaled


@models.register("cnn")
def cnn(shape: ImageShape, classes: int, width: float) -> nn.Module:
    """Four 3×3 convolutions, the image halved twice, its mean, a linear layer.

    64-pixel images are halved at once, as in the other networks.
    """
    channels = [scaled(c, width) for c in (32, 64, 64, 128)]
    layers: list[nn.Module] = []
    strides = (2 if shape.size >= 64 else 1, 2, 1, 2)
    before = shape.channels
    for after, stride in zip(channels, strides, strict=True):
        layers += [
            nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
        ]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))
