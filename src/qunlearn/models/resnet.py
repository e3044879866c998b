"""ResNet-18 for small images (He et al., Deep Residual Learning, 2015)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from qunlearn.models.registry import ImageShape, models, scaled


class Block(nn.Module):
    """A basic block: two 3×3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Apply both convolutions and add the shortcut."""
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return torch.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    """Stem, four stages of basic blocks, global average pooling, linear layer."""

    def __init__(self, depths: tuple[int, ...], shape: ImageShape, classes: int, width: float):
        super().__init__()
        channels = [scaled(c, width) for c in (64, 128, 256, 512)]
        # Images of 64 pixels or more are halved by the stem; smaller ones are not.
        self.conv1 = nn.Conv2d(
            shape.channels,
            channels[0],
            3,
            stride=2 if shape.size >= 64 else 1,
            padding=1,
            bias=False,
        )
        self.bn1 = nn.BatchNorm2d(channels[0])
        blocks: list[nn.Module] = []
        inputs = channels[0]
        for stage, (depth, outputs) in enumerate(zip(depths, channels, strict=True)):
            for i in range(depth):
                blocks.append(Block(inputs, outputs, stride=2 if stage > 0 and i == 0 else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.blocks(x)
        return self.fc(x.mean(dim=(2, 3)))  # type: ignore[no-any-return]


@models.register("resnet18")
def resnet18(shape: ImageShape, classes: int, width: float) -> nn.Module:
    """ResNet-18: 11.2 million parameters at width 1."""
    return ResNet((2, 2, 2, 2), shape, classes, width)
