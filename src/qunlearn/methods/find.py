"""Finding a method: our own, an installed package's, or the user's file."""

from __future__ import annotations

import warnings
from importlib.metadata import EntryPoint, entry_points

from qunlearn.errors import UserError, unknown
from qunlearn.importing import import_from_here
from qunlearn.methods.base import Method, methods
from qunlearn.methods.names import RENAMED

GROUP = "qunlearn.methods"
"""The entry point group by which a package offers methods, each under the method's own name."""


def find_method(name: str) -> Method:
    """The method of this name.

    Args:
        name: One of qunlearn's own, one that an installed package offers, or
            `package.module:name` for a method entered in a file of your own.
    """
    if ":" in name:
        return _in_module(name)
    if name in methods:
        return methods[name]
    offered = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name in offered:
        _load(offered[name])
        return methods[name]
    if name.endswith(".py"):
        stem = name.removesuffix(".py")
        raise UserError(f"The method {name!r} is a file; write {stem}:NAME for a method in it.")
    if name in RENAMED:
        raise UserError(f"Method {name!r} is now called {RENAMED[name]!r}; use that name.")
    raise unknown("method", name, [*methods, *(n for n in offered if n not in methods)])


def all_methods() -> list[Method]:
    """Every method that can be found by name; a package that cannot be loaded is warned about."""
    for entry in entry_points(group=GROUP):
        if entry.name not in methods:
            try:
                _load(entry)
            except UserError as error:
                warnings.warn(str(error), stacklevel=2)
    return [methods[name] for name in methods]


def _load(entry: EntryPoint) -> None:
    package = entry.dist.name if entry.dist else entry.value
    try:
        entry.load()
    except Exception as error:  # whatever a stranger's module does when it is imported
        raise UserError(
            f"The package {package!r} offers the method {entry.name!r}, but it cannot be loaded: "
            f"{type(error).__name__}: {error}; mend or uninstall it."
        ) from error
    if entry.name not in methods:
        raise UserError(
            f"The package {package!r} offers the method {entry.name!r}, but enters none of that "
            "name; its entry point must be named like its method."
        )


def _in_module(path: str) -> Method:
    module, _, name = path.partition(":")
    try:
        import_from_here(module)
    except ModuleNotFoundError as error:
        raise UserError(
            f"The method {path!r} cannot be found: {error}; give package.module:name, importable "
            "from here."
        ) from None
    except Exception as error:  # whatever a user's module does when it is imported
        raise UserError(
            f"The method {path!r} cannot be loaded: {type(error).__name__}: {error}; mend "
            f"{module!r} first."
        ) from error
    defined = [n for n in methods if f"{methods[n].run.__module__}.".startswith(f"{module}.")]
    if name not in defined:
        raise unknown(f"method in {module!r}:", name, defined)
    return methods[name]
