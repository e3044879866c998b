"""Where something that a run names may be now, if it or the run was moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

DEEP = 8
"""At most so many of the last folders of a path are looked for."""


def nearby(folder: Path, recorded: Path | str) -> Iterator[Path]:
    """Every existing path that a recorded path may stand for, the likeliest first.

    First as it stands, then relative to each folder above `folder`, without ever more of its first
    folders: for /data/runs/original also runs/original and original. The caller checks by a digest
    whether it is the right one.
    """
    path = Path(recorded)
    parts = path.parts[1:] if path.is_absolute() else path.parts
    bases = folder.resolve().parents
    inside = [Path(*parts[start:]) for start in (0, *range(max(1, len(parts) - DEEP), len(parts)))]
    guesses = (base / suffix for suffix in inside for base in bases)
    visited: set[Path] = set()
    for guess in (path, *guesses):
        try:
            place, present = guess.resolve(), guess.exists()
        except (OSError, ValueError, RuntimeError):  # closed, or no possible path
            continue
        if present and place not in visited:
            visited.add(place)
            yield guess
