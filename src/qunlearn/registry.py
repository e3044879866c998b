"""Names for things of one kind: a decorator to enter one, a look-up that knows near misses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from qunlearn.errors import unknown

T = TypeVar("T")


class Registry(Generic[T]):
    """A table of named things, such as quantizers, models or data sources.

    >>> shapes: Registry[int] = Registry("shape")
    >>> _ = shapes.register("triangle")(3)
    >>> shapes["triangle"], list(shapes)
    (3, ['triangle'])
    """

    def __init__(self, kind: str):
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Enter the decorated object under a name; a name can be taken only once."""

        def enter(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f"The {self.kind} name {name!r} is taken; choose another one.")
            self._entries[name] = entry
            return entry

        return enter

    def drop(self, name: str) -> None:
        """Take an entry out."""
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
