"""A registry of named objects: a decorator adds one, a look-up suggests the closest name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from qunlearn.errors import unknown

T = TypeVar("T")


class Registry(Generic[T]):
    """Objects of one kind by name, such as quantizers, models or data sources.

    >>> shapes: Registry[int] = Registry("shape")
    >>> _ = shapes.register("triangle")(3)
    >>> shapes["triangle"], list(shapes)
    (3, ['triangle'])
    """

    def __init__(self, kind: str):
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Register the decorated object under a name; each name can be registered once."""

        def add(entry: T) -> T:
            if name in self._entries:
                raise ValueError(
                    f"A {self.kind} named {name!r} is already registered; choose another name."
                )
            self._entries[name] = entry
            return entry

        return add

    def drop(self, name: str) -> None:
        """Remove an entry."""
        del self._entries[name]

    def __getitem__(self, name: str) -> T:
        try:
            return self._entries[name]
        except KeyError:
            raise unknown(self.kind, name, self._entries) from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)
