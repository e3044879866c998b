"""The networks: ResNet-18, MobileNetV2 and a small one for small images, and a table for more."""

from qunlearn.models import cnn, mobilenet, resnet  # noqa: F401  (they enter themselves)
from qunlearn.models.registry import ImageShape, ModelSpec, models

__all__ = ["ImageShape", "ModelSpec", "models"]
