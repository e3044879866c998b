"""Optional packages that only export needs."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from qunlearn.errors import UserError


def needed(package: str) -> Any:
    """Import an optional package; a missing one is a `UserError` with the install command."""
    try:
        return import_module(package)
    except ImportError:
        raise UserError(
            f"ONNX files need {package}, which is not installed; run: "
            "pip install onnx onnxscript onnxruntime."
        ) from None
