"""Reading and writing settings as TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from qunlearn.store.limits import check_toml


def loads(text: str) -> dict[str, Any]:
    """Parse TOML; too complex keys and too large integers are a `ValueError`."""
    check_toml(text)
    values = tomllib.loads(text)
    _check_numbers(values)
    return values


def dumps(values: Mapping[str, Any]) -> str:
    """Serialise strings, numbers, booleans, lists and tables as TOML. None is left out.

    >>> print(dumps({"lr": 0.1, "name": "a", "set": {"alpha": 1.0}}), end="")
    lr = 0.1
    name = "a"
    <BLANKLINE>
    [set]
    alpha = 1.0
    """
    return tomli_w.dumps({k: v for k, v in _plain(values).items() if v != {}})


def _check_numbers(values: Any) -> None:
    """Raise a `ValueError` for integers beyond 64 bits, which Python may refuse to print."""
    pending = [values]
    while pending:
        value = pending.pop()
        if isinstance(value, (dict, list)):
            pending += value.values() if isinstance(value, dict) else value
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError("it has an integer of more than 64 bits")


def _plain(value: Any) -> Any:
    """A value that TOML can represent: without None, and with paths as strings."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value
