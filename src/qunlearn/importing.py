"""Importing what a user names, such as `package.module:factory`; never what a file names."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from qunlearn.children import safe_variables


def import_from_here(module: str) -> ModuleType:
    """Import a module; one that is not installed may be in the working folder.

    The folder comes last on the path, so that nothing in it shadows an installed module.
    """
    package = module.partition(".")[0]
    if package not in sys.modules and importlib.util.find_spec(package) is None:
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.append(here)
    return importlib.import_module(module)


def leave_working_folder() -> None:
    """Take the working folder off the path, in this process and in those that it starts.

    A command may be called in a folder that somebody else filled: what lies there is data. The
    folder that qunlearn itself was loaded from stays.
    """
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    # Python makes an absolute path of an empty entry, so that it no longer looks like one.
    unmeant = any(os.path.normpath(entry or ".") == "." for entry in named)
    own = str(Path(__file__).parents[1])
    sys.path[:] = [
        entry
        for entry in sys.path
        if entry == own or not (entry in ("", ".") or (unmeant and _is_here(entry)))
    ]
    os.environ.update(safe_variables(os.environ))


def _is_here(entry: str) -> bool:
    return Path(entry).is_dir() and Path(entry).samefile(".")
