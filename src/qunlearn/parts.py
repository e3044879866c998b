"""Display names for the parts of a split and for the details of a request."""

from __future__ import annotations

from collections.abc import Mapping

PARTS = {
    "train": "trained on",
    "retain": "retained",
    "forget": "forgotten",
    "held_out": "held out",
    "test": "test",
    "test_forgotten": "test, forgotten classes",
}

LOST = 20
"""Difference in retain accuracy, in percentage points, above which a warning is given."""


def detail_words(detail: Mapping[str, object]) -> str:
    """The details of a request as text.

    >>> detail_words({"fraction": 0.1, "skipped": {"unknown": 2, "listed twice": 1}})
    'fraction 0.1, skipped 2 unknown, 1 listed twice'
    """
    # Versions before 0.2.0 saved the rule, whose value may name a person.
    return ", ".join(
        f"{key} {counts_words(value) if isinstance(value, Mapping) else value}"
        for key, value in detail.items()
        if key != "rule"
    )


def counts_words(counts: Mapping[str, int]) -> str:
    """Counts as text.

    >>> counts_words({"unknown": 2, "listed twice": 1})
    '2 unknown, 1 listed twice'
    """
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items())


def part_name(part: str) -> str:
    """The display name of a part.

    >>> part_name("held_out"), part_name("forget_2")
    ('held out', 'forgotten earlier, request 2')
    """
    number = part.removeprefix("forget_")
    return f"forgotten earlier, request {number}" if number != part else PARTS.get(part, part)
