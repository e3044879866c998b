"""Models for small images: ResNet-18, MobileNetV2, a small CNN, and a registry for others."""

from qunlearn.models import cnn, mobilenet, resnet  # noqa: F401  (registers them)
from qunlearn.models.registry import ImageShape, ModelSpec, models

__all__ = ["ImageShape", "ModelSpec", "models"]
