"""The packages that only export needs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from qunlearn.errors import UserError


def needed(package: str) -> Any:
    """A package of the extra `onnx`, or one sentence that says how to install it."""
    try:
        return import_module(package)
    except ImportError:
        raise UserError(
            f"ONNX files need {package}, which is not installed; run: "
            "pip install onnx onnxscript onnxruntime."
        ) from None
