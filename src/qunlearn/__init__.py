"""Make a quantized network forget, show by measurement that it did, ship it.

    import qunlearn as qu
    model = qu.quantize(model, qu.QuantSpec(weights=4, activations=4, quantizer="lsq+"))

Names are loaded when first used, so that importing qunlearn takes no time.
"""

import os
import sys

# `python -m qunlearn` puts the working folder first on the path. It may be somebody else's, so it
# is taken off before anything is imported from there. A library leaves the path alone.
_words = " ".join(sys.orig_argv)
if sys.argv[:1] == ["-m"] and (" -m qunlearn" in _words or " -mqunlearn" in _words):
    _first, _own = sys.path[0], os.path.abspath(f"{__file__}/../..")  # noqa: PTH100
    if _first != _own and (not _first or (os.path.isdir(_first) and os.path.samefile(_first, "."))):  # noqa: PTH112, PTH121
        del sys.path[0]

from importlib import import_module  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

if TYPE_CHECKING:
    from qunlearn import export as export
    from qunlearn import metrics as metrics
    from qunlearn.api import Result as Result
    from qunlearn.api import forget as forget
    from qunlearn.api import save as save
    from qunlearn.api import train as train
    from qunlearn.data import Augmentation as Augmentation
    from qunlearn.data import Data as Data
    from qunlearn.data import ImageData as ImageData
    from qunlearn.data import Loader as Loader
    from qunlearn.data import Split as Split
    from qunlearn.data import load_dataset as load_dataset
    from qunlearn.errors import UserError as UserError
    from qunlearn.export import export_onnx as export_onnx
    from qunlearn.gradients import GradientProjector as GradientProjector
    from qunlearn.methods import method as method
    from qunlearn.methods import negative_entropy as negative_entropy
    from qunlearn.models import ModelSpec as ModelSpec
    from qunlearn.quant import QuantSpec as QuantSpec
    from qunlearn.quant import calibrate as calibrate
    from qunlearn.quant import describe as describe
    from qunlearn.quant import quantize as quantize
    from qunlearn.runs.evaluate import evaluate as evaluate
    from qunlearn.runs.model_file import load as load

__version__ = "0.2.0"

_HOMES = {
    "Result": "qunlearn.api",
    "forget": "qunlearn.api",
    "save": "qunlearn.api",
    "train": "qunlearn.api",
    "Augmentation": "qunlearn.data",
    "Data": "qunlearn.data",
    "ImageData": "qunlearn.data",
    "Loader": "qunlearn.data",
    "Split": "qunlearn.data",
    "load_dataset": "qunlearn.data",
    "UserError": "qunlearn.errors",
    "export_onnx": "qunlearn.export",
    "GradientProjector": "qunlearn.gradients",
    "method": "qunlearn.methods",
    "negative_entropy": "qunlearn.methods",
    "ModelSpec": "qunlearn.models",
    "QuantSpec": "qunlearn.quant",
    "calibrate": "qunlearn.quant",
    "describe": "qunlearn.quant",
    "quantize": "qunlearn.quant",
    "evaluate": "qunlearn.runs.evaluate",
    "load": "qunlearn.runs.model_file",
}

_ROOMS = ("export", "metrics")
"""Packages that are there by their own name; `qu.export(model, path)` can be called, too."""

__all__ = [*_HOMES, *_ROOMS]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"qunlearn.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'qunlearn' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
