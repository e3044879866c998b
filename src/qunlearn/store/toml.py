"""Settings as TOML: reading by the standard library, writing the little that settings need."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def loads(text: str) -> dict[str, Any]:
    """Read TOML."""
    return tomllib.loads(text)


def dumps(values: Mapping[str, Any]) -> str:
    """Write TOML: strings, numbers, truth values, lists, and tables of them. None is left out.

    >>> print(dumps({"lr": 0.1, "name": "a", "set": {"alpha": 1.0}}), end="")
    lr = 0.1
    name = "a"
    <BLANKLINE>
    [set]
    alpha = 1.0
    """
    plain = {k: v for k, v in values.items() if v is not None and not isinstance(v, Mapping)}
    tables = {k: v for k, v in values.items() if isinstance(v, Mapping) and v}
    lines = [f"{_key(k)} = {_value(v)}" for k, v in plain.items()]
    for name, table in tables.items():
        lines += ["", f"[{_key(name)}]"]
        lines += [f"{_key(k)} = {_value(v)}" for k, v in table.items() if v is not None]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + "}"
    return _text(str(value))


def _text(value: str) -> str:
    # A JSON string is a TOML basic string, but for DEL, which TOML wants escaped too.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
