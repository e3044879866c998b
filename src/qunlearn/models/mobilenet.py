"""MobileNetV2 for small images (Sandler et al., Inverted Residuals, 2018)."""

from __future__ import annotations

from torch import Tensor, nn

from qunlearn.models.registry import ImageShape, models, scaled

# expansion, channels, repeats, stride; the first two strides are 1 because the images are small
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _conv(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    convolution = nn.Conv2d(
        inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False
    )
    return [convolution, nn.BatchNorm2d(outputs)]


class InvertedResidual(nn.Module):
    """1×1 expansion, 3×3 depthwise convolution, 1×1 projection; residual where shapes match."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int):
        super().__init__()
        hidden = inputs * expansion
        self.residual = stride == 1 and inputs == outputs
        widen = [*_conv(inputs, hidden, 1), nn.ReLU6()] if expansion != 1 else []
        self.layers = nn.Sequential(
            *widen,
            *_conv(hidden, hidden, 3, stride, groups=hidden),
            nn.ReLU6(),
            *_conv(hidden, outputs, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Apply the convolutions, and the residual connection if there is one."""
        y: Tensor = self.layers(x)
        return x + y if self.residual else y


class MobileNetV2(nn.Module):
    """Stem, seventeen inverted residuals, 1×1 convolution, global average pooling, linear layer."""

    def __init__(self, shape: ImageShape, classes: int, width: float):
        super().__init__()
        channels = scaled(32, width)
        stem = 2 if shape.size >= 64 else 1
        layers = [*_conv(shape.channels, channels, 3, stem), nn.ReLU6()]
        for expansion, outputs, repeats, stride in STAGES:
            for i in range(repeats):
                wide = scaled(outputs, width)
                layers.append(InvertedResidual(channels, wide, stride if i == 0 else 1, expansion))
                channels = wide
        last = scaled(1280, max(width, 1.0))  # the last layer is never narrowed, as in the paper
        self.features = nn.Sequential(*layers, *_conv(channels, last, 1), nn.ReLU6())
        self.classifier = nn.Linear(last, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        return self.classifier(self.features(x).mean(dim=(2, 3)))  # type: ignore[no-any-return]


@models.register("mobilenetv2")
def mobilenetv2(shape: ImageShape, classes: int, width: float) -> nn.Module:
    """MobileNetV2: 2.2 million parameters at width 1 with ten classes."""
    return MobileNetV2(shape, classes, width)
