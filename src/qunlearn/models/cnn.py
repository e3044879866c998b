"""A small CNN for demos and quick experiments: it trains in seconds."""

from __future__ import annotations

from torch import nn

from qunlearn.models.registry import ImageShape, models, scaled


@models.register("cnn")
def cnn(shape: ImageShape, classes: int, width: float) -> nn.Module:
    """Four 3×3 convolutions (two with stride 2), global average pooling, a linear layer.

    Images of 64 pixels or more are halved in the first layer, as in the other models.
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
