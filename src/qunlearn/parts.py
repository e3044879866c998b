"""What people call the parts of a split."""

from __future__ import annotations

PARTS = {
    "train": "trained on",
    "retain": "retained",
    "forget": "forgotten",
    "held_out": "held out",
    "test": "test",
    "test_forgotten": "test, forgotten classes",
}


def part_name(part: str) -> str:
    """What people call a part.

    >>> part_name("held_out"), part_name("forget_2")
    ('held out', 'forgotten earlier, request 2')
    """
    number = part.removeprefix("forget_")
    return f"forgotten earlier, request {number}" if number != part else PARTS.get(part, part)
