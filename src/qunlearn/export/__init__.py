"""Export to ONNX, with a check that the exported model matches the original."""

import sys

from qunlearn.export.agreement import Agreement
from qunlearn.export.call import CallableModule
from qunlearn.export.export import Exported, export_onnx, export_run, exported_from
from qunlearn.export.network import OnnxNetwork

__all__ = [
    "Agreement",
    "Exported",
    "OnnxNetwork",
    "export_onnx",
    "export_run",
    "exported_from",
]

sys.modules[__name__].__class__ = CallableModule  # qu.export(model, path)
