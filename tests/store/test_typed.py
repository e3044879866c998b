"""Typed values as JSON, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from qunlearn.store.typed import typed, untyped


@dataclass(frozen=True)
class Figure:
    value: float | None
    unit: str | None = None


@dataclass(frozen=True)
class Finding:
    main: Figure | None
    figures: tuple[Figure, ...]
    by_name: Mapping[str, Figure]
    notes: list[str] = field(default_factory=list)


def test_what_was_written_can_be_read_whatever_is_none():
    """An audit without a figure says so; its file is read again by `report` and `certify`."""
    figures = (Figure(None), Figure(0.5, "%"), Figure(None, "nats"))
    for finding in (Finding(None, (), {}), Finding(figures[0], figures, {"a": figures[2]})):
        content = json.loads(json.dumps(untyped(finding)))
        assert typed(Finding, content, Path("audit.json")) == finding
    assert untyped(figures[0]) == {"value": None}  # what is None by default is left out
