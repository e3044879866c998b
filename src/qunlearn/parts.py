"""What people call the parts of a split, and what a run tells beside its figures."""

from __future__ import annotations

PARTS = {
    "train": "trained on",
    "retain": "retained",
    "forget": "forgotten",
    "held_out": "held out",
    "test": "test",
    "test_forgotten": "test, forgotten classes",
}

TOLD = ("calibration", "duplicates", "elsewhere")
"""Those entries of a run's metrics that have a `sentence` for people."""

LOST = 20
"""By how many points the accuracy on what is retained may differ before a warning is due."""


def part_name(part: str) -> str:
    """What people call a part.

    >>> part_name("held_out"), part_name("forget_2")
    ('held out', 'forgotten earlier, request 2')
    """
    number = part.removeprefix("forget_")
    return f"forgotten earlier, request {number}" if number != part else PARTS.get(part, part)
