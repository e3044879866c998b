"""From what a JSON file holds to a typed value, and back."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from qunlearn.errors import UserError

T = TypeVar("T")

Json = dict[str, Any]
"""A JSON object, as a file holds it."""


def typed(kind: type[T], content: object, path: Path) -> T:
    """The content of a file as a `kind`, such as a dataclass; what does not fit is a `UserError`.

    What a checksum agrees with may still come from somebody who means harm, or knows no better.
    """
    adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type]  # a class is hashable
    try:
        return adapter.validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "content"
        raise UserError(
            f"{str(path)!r} does not hold what qunlearn writes ({where}: {first['msg']}); restore "
            "it from a copy, or make it again."
        ) from None


def untyped(value: object) -> Json:
    """A dataclass as JSON has it; what is None is left out."""
    adapter: TypeAdapter[object] = _adapter(type(value))  # type: ignore[arg-type]
    content: Json = adapter.dump_python(value, mode="json", exclude_none=True)
    return content


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
