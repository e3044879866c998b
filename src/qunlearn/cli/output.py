"""What commands print: a table for people, JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

NAMES = {
    "train": "trained on",
    "retain": "retained",
    "forget": "forgotten",
    "held_out": "held out",
    "test": "test",
    "test_forgotten": "test, forgotten classes",
}


def part_name(part: str) -> str:
    """What people call a part of the split.

    >>> part_name("held_out"), part_name("forget_2")
    ('held out', 'forgotten earlier, request 2')
    """
    number = part.removeprefix("forget_")
    return f"forgotten earlier, request {number}" if number != part else NAMES.get(part, part)


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON document."""
    print(json.dumps(value, indent=1, ensure_ascii=False, default=str))


def print_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", left: int = 1
) -> None:
    """Print a table, the first `left` columns to the left and the others to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(head):
        table.add_column(name, justify="left" if i < left else "right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def print_accuracies(metrics: Mapping[str, Any], title: str = "") -> None:
    """Print the accuracy on every part."""
    rows = [
        (part_name(part), f"{m['accuracy']:.2f} %", f"{m['samples']:,}")
        for part, m in metrics.items()
    ]
    print_table(("part", "accuracy", "samples"), rows, title)
