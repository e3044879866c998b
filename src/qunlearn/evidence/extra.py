"""Optional packages that only signing and verifying need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from qunlearn.errors import UserError


def needed(module: str) -> Any:
    """Import a module of an optional package; a missing one is a `UserError` with the remedy."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0].replace("_", "-")
        raise UserError(
            f"Signed records need {package}, which is not installed; run: "
            "pip install 'qunlearn[certify]'."
        ) from None
