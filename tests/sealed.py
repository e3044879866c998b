"""Changing a finished run as somebody would who also knows how to take checksums."""

import hashlib
from pathlib import Path


def seal(path: Path) -> None:
    """Take the checksums of a run's files anew."""
    names = [line.split("  ")[1] for line in (path / "checksums.txt").read_text().splitlines()]
    sums = [hashlib.sha256((path / name).read_bytes()).hexdigest() for name in names]
    lines = [f"{digest}  {name}\n" for digest, name in zip(sums, names, strict=True)]
    (path / "checksums.txt").write_text("".join(lines))
