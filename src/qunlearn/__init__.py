"""Make a quantized network forget, show by measurement that it did, ship it.

    import qunlearn as qu
    model = qu.quantize(model, qu.QuantSpec(weights=4, activations=4, quantizer="lsq+"))

Names are loaded when first used, so that importing qunlearn takes no time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qunlearn import metrics as metrics
    from qunlearn.data import ImageData as ImageData
    from qunlearn.data import Loader as Loader
    from qunlearn.data import Split as Split
    from qunlearn.data import load_dataset as load_dataset
    from qunlearn.errors import UserError as UserError
    from qunlearn.export import export_onnx as export_onnx
    from qunlearn.gradients import GradientProjector as GradientProjector
    from qunlearn.methods import forget as forget
    from qunlearn.methods import method as method
    from qunlearn.methods import negative_entropy as negative_entropy
    from qunlearn.models import ModelSpec as ModelSpec
    from qunlearn.quant import QuantSpec as QuantSpec
    from qunlearn.quant import calibrate as calibrate
    from qunlearn.quant import describe as describe
    from qunlearn.quant import quantize as quantize
    from qunlearn.training.checkpoint import load as load
    from qunlearn.training.evaluate import evaluate as evaluate
    from qunlearn.training.train import train as train

__version__ = "0.1.0"

_HOMES = {
    "ImageData": "qunlearn.data",
    "Loader": "qunlearn.data",
    "Split": "qunlearn.data",
    "load_dataset": "qunlearn.data",
    "UserError": "qunlearn.errors",
    "export_onnx": "qunlearn.export",
    "GradientProjector": "qunlearn.gradients",
    "forget": "qunlearn.methods",
    "method": "qunlearn.methods",
    "negative_entropy": "qunlearn.methods",
    "ModelSpec": "qunlearn.models",
    "QuantSpec": "qunlearn.quant",
    "calibrate": "qunlearn.quant",
    "describe": "qunlearn.quant",
    "quantize": "qunlearn.quant",
    "evaluate": "qunlearn.training.evaluate",
    "load": "qunlearn.training.checkpoint",
    "train": "qunlearn.training.train",
}

__all__ = [*_HOMES, "metrics"]


def __getattr__(name: str) -> Any:
    if name == "metrics":
        return import_module("qunlearn.metrics")
    if name not in _HOMES:
        raise AttributeError(f"module 'qunlearn' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
