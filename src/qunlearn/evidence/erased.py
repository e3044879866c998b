"""What `erase` has on record: what it removed, what it cleaned, and what it could not reach."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qunlearn.runs.lines import RequestLine
from qunlearn.store.files import read_object
from qunlearn.store.typed import typed

ERASED = "erased.json"

Kind = Literal[
    "backups", "exports", "devices", "data", "metadata", "embedded", "foreign", "unreadable",
    "outside", "list", "cache",
]  # fmt: skip


@dataclass(frozen=True)
class Left:
    """Something that may still hold the samples, and is not reached.

    Attributes:
        kind: What kind of thing.
        name: Where it is, if that is known.
    """

    kind: Kind
    name: str = ""


@dataclass(frozen=True)
class ErasedRecord:
    """What was erased.

    Attributes:
        completed: When.
        samples: How many samples.
        removed: What was deleted.
        cleaned: What was cleaned: only what speaks of the samples was removed from it.
        left: What may still hold the samples.
        lines: The requests that the run answered.
        forgotten: When its network had forgotten.
        key: What its requests are told apart by, from the tokens of the samples.
    """

    completed: str
    samples: int
    removed: tuple[str, ...]
    cleaned: tuple[str, ...]
    left: tuple[Left, ...]
    lines: tuple[RequestLine, ...] = ()
    forgotten: str = ""
    key: str = ""


def erased_of(folder: Path) -> ErasedRecord | None:
    """What was erased for a run; None if nothing was."""
    path = folder / ERASED
    return typed(ErasedRecord, read_object(path), path) if path.is_file() else None
