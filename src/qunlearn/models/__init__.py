"""The networks: ResNet-18 and MobileNetV2 for small images, and a table for more."""

from qunlearn.models import mobilenet, resnet  # noqa: F401  (they enter themselves into the table)
from qunlearn.models.registry import ImageShape, ModelSpec, models

__all__ = ["ImageShape", "ModelSpec", "models"]
