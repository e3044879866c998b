"""Where something that a run names may be now, if it or the run was moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

DEEP = 8
"""With how many of its last folders, at most, a name is looked for."""


def nearby(folder: Path, named: Path | str) -> Iterator[Path]:
    """Every existing path that a name may stand for, the likeliest first.

    As it stands; then seen from the folders above `folder`, with ever fewer of the folders that the
    name begins with: of /data/runs/original also runs/original and original. Whether what is there
    is what was meant is for the caller to judge, by a digest.
    """
    path = Path(named)
    parts = path.parts[1:] if path.is_absolute() else path.parts
    bases = folder.resolve().parents
    inside = [Path(*parts[start:]) for start in (0, *range(max(1, len(parts) - DEEP), len(parts)))]
    guesses = (base / rest for rest in inside for base in bases)
    visited: set[Path] = set()
    for guess in (path, *guesses):
        try:
            place, present = guess.resolve(), guess.exists()
        except (OSError, ValueError, RuntimeError):  # closed, or no possible path
            continue
        if present and place not in visited:
            visited.add(place)
            yield guess
