"""Import modules that the user names (`package.module:factory`), never ones that a file names."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from qunlearn.children import safe_variables


def import_from_here(module: str) -> ModuleType:
    """Import an installed module, or one in the working folder.

    The working folder is appended to `sys.path`, so it never shadows an installed module.
    """
    package = module.partition(".")[0]
    if package not in sys.modules and importlib.util.find_spec(package) is None:
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.append(here)
    return importlib.import_module(module)


def leave_working_folder() -> None:
    """Remove the working folder from `sys.path`, in this process and in its children.

    A command may run in a folder with untrusted files: those are data, not code. The folder that
    qunlearn itself was imported from stays.
    """
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    # Python turns an empty entry into an absolute path, so compare by the folder itself.
    here_listed = any(os.path.normpath(entry or ".") == "." for entry in entries)
    package_root = str(Path(__file__).parents[1])
    sys.path[:] = [
        entry
        for entry in sys.path
        if entry == package_root
        or not (entry in ("", ".") or (here_listed and _is_working_folder(entry)))
    ]
    os.environ.update(safe_variables(os.environ))


def _is_working_folder(entry: str) -> bool:
    return Path(entry).is_dir() and Path(entry).samefile(".")
