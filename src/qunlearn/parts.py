"""What people call the parts of a split, and what a run tells beside its figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PARTS = {
    "train": "trained on",
    "retain": "retained",
    "forget": "forgotten",
    "held_out": "held out",
    "test": "test",
    "test_forgotten": "test, forgotten classes",
}

TOLD = ("declared", "request", "duplicates", "elsewhere")
"""Those entries of a run's metrics that have a `sentence` for people; the last in older runs."""

LOST = 20
"""By how many points the accuracy on what is retained may differ before a warning is due."""


def detail_words(detail: Mapping[str, Any]) -> str:
    """What a request asked, in words.

    >>> detail_words({"fraction": 0.1, "skipped": {"unknown": 2, "listed twice": 1}})
    'fraction 0.1, skipped 2 unknown, 1 listed twice'
    """
    return ", ".join(
        f"{key} {counted(value) if isinstance(value, Mapping) else value}"
        for key, value in detail.items()
    )


def counted(counts: Mapping[str, int]) -> str:
    """Counts in words.

    >>> counted({"unknown": 2, "listed twice": 1})
    '2 unknown, 1 listed twice'
    """
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items())


def part_name(part: str) -> str:
    """What people call a part.

    >>> part_name("held_out"), part_name("forget_2")
    ('held out', 'forgotten earlier, request 2')
    """
    number = part.removeprefix("forget_")
    return f"forgotten earlier, request {number}" if number != part else PARTS.get(part, part)
