"""The methods, each in a file of its own, entered by name."""

from importlib import import_module

from qunlearn.methods.base import Job, Method, MethodConfig, Range, SgdConfig, method
from qunlearn.methods.find import all_methods, find_method
from qunlearn.methods.forget import Forgotten, forget
from qunlearn.methods.losses import negative_entropy
from qunlearn.training.config import Epochs, LearningRate

__all__ = [
    "Epochs",
    "Forgotten",
    "Job",
    "LearningRate",
    "Method",
    "MethodConfig",
    "Range",
    "SgdConfig",
    "all_methods",
    "find_method",
    "forget",
    "method",
    "negative_entropy",
]

# Importing a file enters its method; in the order of the paper's table.
for name in (
    "retrain",
    "ft",
    "ga",
    "iu",
    "rl",
    "l1_sparse",
    "salun",
    "qmul",
    "regun",
    "oeu",
    "calibrated",
):
    import_module(f"qunlearn.methods.{name}")
