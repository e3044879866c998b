"""Importing what a user names, such as `package.module:factory`; never what a file names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType


def import_from_here(module: str) -> ModuleType:
    """Import a module; one in the working folder is meant too, last, so that it shadows nothing."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    return importlib.import_module(module)
