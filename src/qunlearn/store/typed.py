"""Conversion between the content of JSON files and typed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from qunlearn.errors import UserError

T = TypeVar("T")

Json = dict[str, Any]
"""A JSON object, as a file holds it."""


def typed(kind: type[T], content: object, path: Path) -> T:
    """Validate the content of a file as a `kind`, such as a dataclass; a mismatch is a `UserError`.

    A file with a matching checksum may still have been forged or edited.
    """
    adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type]  # a class is hashable
    try:
        return adapter.validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "content"
        raise UserError(
            f"The content of {str(path)!r} is invalid ({where}: {first['msg']}); restore the file "
            "from a copy, or create it again."
        ) from None


def untyped(value: object) -> Json:
    """A dataclass as JSON has it; what is None is left out, except where it has to be said."""
    adapter: TypeAdapter[object] = _adapter(type(value))  # type: ignore[arg-type]
    content: Json = adapter.dump_python(value, mode="json", exclude_none=True)
    _put_back(value, content)
    return content


def _put_back(value: object, content: Any) -> None:
    """Put back what is None and has no default: without it, the content could not be read."""
    if is_dataclass(value):
        for field in fields(value):
            if field.default is MISSING and field.default_factory is MISSING:
                content.setdefault(field.name, None)
            _put_back(getattr(value, field.name), content.get(field.name))
    elif isinstance(value, Mapping):
        for key, each in value.items():
            _put_back(each, content.get(str(key)))
    elif isinstance(value, (list, tuple)):
        for each, entry in zip(value, content, strict=True):
            _put_back(each, entry)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
